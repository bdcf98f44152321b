"""Results of calls on files that say that something was refused, as the exceptions that `open` raises."""

from __future__ import annotations

import errno
from typing import Any

from sandmesh.errors import Cancelled, DeadlineExceeded
from sandmesh.events import Result


def is_interrupted(result: Result) -> bool:
    """Say whether a transfer was cut off because its reader seemed to be gone: it may be taken up again."""
    return result.is_error and result.reason == "CANCELLED"


def check_result(result: Result) -> dict[str, Any]:
    """Give a result's facts.

    Raises:
        OSError: What the sandbox's system said, as the subclass that fits its number.
        DeadlineExceeded: The time for it was over.
        Cancelled: Somebody cancelled it.
    """
    facts = result.structured or {}
    if not result.is_error:
        return facts
    if result.reason == "TIMED_OUT":
        raise DeadlineExceeded(f"{result.message}: its time was over; give the box a longer timeout")
    if result.reason == "CANCELLED":
        raise Cancelled(result.message)
    number = facts.get("errno")
    raise OSError(number if isinstance(number, int) else errno.EIO, result.message)
