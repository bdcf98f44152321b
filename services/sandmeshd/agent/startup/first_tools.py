"""The two tools that most sessions begin with, available before the declarations of all tools are imported.

In an agent that is not forked, that import takes as long as the rest of its start: it can wait until the agent is idle.
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
class CellParams:
    """The parameters of run_ipython_cell, as in its declaration."""

    code: str
    timeout: float | None = None


@dataclass(frozen=True)
class CommandParams:
    """The parameters of run_shell_command, as in its declaration."""

    command: str
    timeout: float | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None


class FirstTools:
    """A sandbox's tools before all are imported; `whole` returns all, and is slow at its first call."""

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
        """Return a tool's validated arguments and its handler, as `Toolbox.prepare` does.

        Raises:
            InternalError: The tools could not be imported.
        """
        read, handler = self._first.get(name, (None, None))
        params = read(arguments) if read is not None else None
        return self._whole().prepare(name, arguments) if params is None or handler is None else (params, handler)

    def is_bounded(self, name: str) -> bool:
        """Return whether a template's bound on the time of calls applies to a tool."""
        return name in self._first or self._whole().is_bounded(name)

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all."""
        return self._whole().listing(group)


def read_cell(arguments: bytes) -> CellParams | None:
    """Parse a cell that plainly matches its declaration; None: the declaration decides."""
    params = _read(arguments, "code", {"timeout": _fits_timeout})
    return None if params is None else CellParams(**params)


def read_command(arguments: bytes) -> CommandParams | None:
    """Parse a command that plainly matches its declaration; None: as above."""
    params = _read(arguments, "command", {"timeout": _fits_timeout, "cwd": _is_text, "env": _are_texts})
    return None if params is None else CommandParams(**params)


def _read(arguments: bytes, name: str, others: Mapping[str, Callable[[Any], bool]]) -> dict[str, Any] | None:
    try:
        params = _object(json.loads(arguments.decode()))
        fits = _is_text(params[name]) and bool(params[name].strip())
        fits = fits and all(
            key == name or (value is None and key in others) or others[key](value) for key, value in params.items()
        )
    except (ValueError, KeyError, RecursionError):
        return None
    return params if fits else None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def _fits_timeout(value: Any) -> bool:
    return type(value) in {int, float} and 0 < value < _LONGEST_SECONDS


def _is_text(value: Any) -> bool:
    # A lone surrogate raises a ValueError here.
    return type(value) is str and len(value.encode()) >= 0


def _are_texts(value: Any) -> bool:
    return type(value) is dict and all(_is_text(part) for item in _object(value).items() for part in item)
