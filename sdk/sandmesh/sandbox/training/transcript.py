"""Recordings of episodes: their calls as JSON lines, and how a replay differs from them.

The first line has "format", "version", "sandbox_type" and "started". Each further line is a call that has ended: "call"
(1 and on), "tool", "arguments", and "result", or "error" with its "type" and "fault".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from sandmesh._tools import Tool, dump
from sandmesh._tools.training import CreateInstance, Evaluate, ReleaseInstance, Step
from sandmesh.errors import InvalidArgument, NotFound, SandmeshError

FORMAT: Final = "sandmesh-episodes"
VERSION: Final = 1
_RECORDED: Final = {tool.name: tool for tool in (CreateInstance, Step, Evaluate, ReleaseInstance)}


@dataclass(frozen=True)
class Difference:
    """A part of a call's outcome that a replay did not repeat; None where one of them has no such part."""

    call: int
    tool: str
    path: str
    recorded: Any
    replayed: Any


@dataclass
class Replay:
    """How many calls were made again, and where their outcomes differ."""

    calls: int = 0
    differences: list[Difference] = field(default_factory=list[Difference])


class EpisodeRecording:
    """A file that calls are appended to."""

    def __init__(self, path: Path, sandbox_type: str) -> None:
        self._path = path
        self._calls = 0
        started = datetime.now(UTC).isoformat(timespec="seconds")
        header = {"format": FORMAT, "version": VERSION, "sandbox_type": sandbox_type, "started": started}
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(header) + "\n")
        except FileExistsError:
            raise InvalidArgument(f"{path} exists: record to a new file") from None
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be written: {error.strerror}") from None

    def add_result(self, declaration: Tool, result: Any) -> None:
        """Append a call that returned."""
        self._add(declaration, {"result": result})

    def add_failure(self, declaration: Tool, error: SandmeshError) -> None:
        """Append a call that failed."""
        self._add(declaration, {"error": describe(error)})

    def _add(self, declaration: Tool, outcome: dict[str, Any]) -> None:
        if declaration.name not in _RECORDED:
            return
        arguments = dict(dump(declaration))
        if isinstance(declaration, CreateInstance) and "result" in outcome:
            # The id that was made: later calls name it.
            arguments["instance_id"] = outcome["result"]["info"]["instance_id"]
        self._calls += 1
        line = {"call": self._calls, "tool": declaration.name, "arguments": arguments, **outcome}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise InvalidArgument(f"{self._path} cannot be written: {error.strerror}") from None


def describe(error: SandmeshError) -> dict[str, str]:
    """Return what is recorded of a failure."""
    return {"type": type(error).__name__, "fault": error.fault}


def read_header(path: Path) -> dict[str, Any]:
    """Return the first line of a recording.

    Raises:
        NotFound: There is no such file.
        InvalidArgument: It is not a recording of episodes.
    """
    try:
        with path.open("rb") as file:
            header = _object(file.readline())
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    if header.get("format") != FORMAT:
        raise InvalidArgument(f"{path} is not a recording of episodes: pass a file that record_episodes has written")
    if header.get("version") != VERSION:
        raise InvalidArgument(f"{path} is of version {header.get('version')!r}; this release reads version {VERSION}")
    return header


def read_recording(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the calls of a recording. A last line that was cut is left out.

    Raises:
        NotFound: There is no such file.
        InvalidArgument: It is not a recording of episodes.
    """
    read_header(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 or not line.endswith(b"\n"):
                continue
            call = _object(line)
            if call.get("tool") not in _RECORDED or not isinstance(call.get("arguments"), dict):
                raise InvalidArgument(f"line {number} of {path} is not a call of an episode")
            yield call


def compare(call: dict[str, Any], outcome: dict[str, Any], ignore: Sequence[str]) -> list[Difference]:
    """Return where the outcome of a call differs from the recorded one."""
    recorded = {name: call[name] for name in ("result", "error") if name in call}
    number, tool = int(call.get("call", 0)), str(call["tool"])
    return [
        Difference(number, tool, path, left, right)
        for path, left, right in _differences("", recorded, outcome)
        if not any(path == each or path.startswith(f"{each}.") for each in ignore)
    ]


def _differences(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    mine, other = _parts(left), _parts(right)
    if mine is None or other is None or type(left) is not type(right):
        # As texts, since NaN does not equal itself.
        if json.dumps(left) != json.dumps(right):
            yield path, left, right
        return
    for name in [*mine, *(each for each in other if each not in mine)]:
        inner = f"{path}.{name}" if path else name
        if (name in mine) != (name in other):
            yield inner, mine.get(name), other.get(name)
        else:
            yield from _differences(inner, mine[name], other[name])


def _parts(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    if isinstance(value, list):
        return {str(at): each for at, each in enumerate(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # of JSON
    return None


def _object(line: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
