"""What a requirement says when it does not hold."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from sandmesh.errors import SandmeshError

E = TypeVar("E", bound=SandmeshError)


def expect(holds: bool, what: str) -> None:
    """Check one thing.

    Raises:
        AssertionError: It does not hold.
    """
    if not holds:
        raise AssertionError(what)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Check that two things are equal.

    Raises:
        AssertionError: They are not.
    """
    expect(found == wanted, f"{what}: {found!r}, not {wanted!r}")


async def expect_error(kind: type[E], work: Awaitable[object]) -> E:
    """Check that something ends with an error of a kind, and give the error.

    Raises:
        AssertionError: It ends well or with another error.
    """
    try:
        answer = await work
    except kind as error:
        return error
    except SandmeshError as error:
        raise AssertionError(f"it ended with {error!r}, not {kind.__name__}") from error
    raise AssertionError(f"it answered {answer!r}, not {kind.__name__}")
