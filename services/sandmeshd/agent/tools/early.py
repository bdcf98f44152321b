"""The two tools that most begin with, ready before all that declares tools is imported.

That takes an agent which is not forked as long as everything else of its start, and it may wait for a quieter moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from sandmesh.api.call.v1 import call_pb2 as pb
    from sandmeshd.agent.calls.toolbox import Added, Handler, Toolbox

_LONGEST_SECONDS: Final = 1e9


@dataclass(frozen=True)
class EarlyCell:
    """What run_ipython_cell is told, as its declaration has it."""

    code: str
    timeout: float | None = None


@dataclass(frozen=True)
class EarlyCommand:
    """What run_shell_command is told, as its declaration has it."""

    command: str
    timeout: float | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None


class Early:
    """A sandbox's tools before all of them are there; `whole` gives those, and takes its time at the first call."""

    def __init__(self, cell: Handler, command: Handler, whole: Callable[[], Toolbox]) -> None:
        self._first: Mapping[str, tuple[Callable[[bytes], Any], Handler]] = {
            "run_ipython_cell": (read_cell, cell),
            "run_shell_command": (read_command, command),
        }
        self._whole = whole

    @property
    def added(self) -> Added | None:
        """Tools that come and go."""
        return self._whole().added

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Give a tool's checked arguments and its handler, as `Toolbox.prepare` does.

        Raises:
            InternalError: The tools could not be made.
        """
        read, handler = self._first.get(name, (None, None))
        told = read(arguments) if read is not None else None
        return self._whole().prepare(name, arguments) if told is None or handler is None else (told, handler)

    def is_bounded(self, name: str) -> bool:
        """Say whether a template's bound on the time of calls is for this."""
        return name in self._first or self._whole().is_bounded(name)

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all."""
        return self._whole().listing(group)


def read_cell(arguments: bytes) -> EarlyCell | None:
    """Read a cell that plainly fits its declaration; None: that is for the declaration to say."""
    told = _read(arguments, "code", {"timeout": _fits_timeout})
    return None if told is None else EarlyCell(**told)


def read_command(arguments: bytes) -> EarlyCommand | None:
    """Read a command that plainly fits its declaration; None: as above."""
    told = _read(arguments, "command", {"timeout": _fits_timeout, "cwd": _is_text, "env": _are_texts})
    return None if told is None else EarlyCommand(**told)


def _read(arguments: bytes, name: str, others: Mapping[str, Callable[[Any], bool]]) -> dict[str, Any] | None:
    try:
        told = _object(json.loads(arguments.decode()))
        fits = _is_text(told[name]) and bool(told[name].strip())
        fits = fits and all(
            key == name or (value is None and key in others) or others[key](value) for key, value in told.items()
        )
    except (ValueError, KeyError, RecursionError):
        return None
    return told if fits else None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def _fits_timeout(value: Any) -> bool:
    return type(value) in {int, float} and 0 < value < _LONGEST_SECONDS


def _is_text(value: Any) -> bool:
    # What is half of a character is no text, and raises a ValueError here.
    return type(value) is str and len(value.encode()) >= 0


def _are_texts(value: Any) -> bool:
    return type(value) is dict and all(_is_text(part) for item in _object(value).items() for part in item)
