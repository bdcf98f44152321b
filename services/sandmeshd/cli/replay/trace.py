"""The trace of a recording, read from its folder.

It comes out of a sandbox: its lines are checked, and only files that it can have are read, links not followed.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

FORMAT: Final = "sandmesh-trace"
TRACE_FILE: Final = "trace.jsonl"
_VIDEOS: Final = {"video.mp4": "video/mp4", "video.webm": "video/webm"}
_JPEG: Final = b"\xff\xd8"
_LARGEST_LINE: Final = 1 << 20
_MOST_STEPS: Final = 10_000
_LARGEST_PICTURE: Final = 16 << 20


@dataclass(frozen=True)
class TraceStep:
    """A call of a tool; times are seconds."""

    number: int
    at: float
    seconds: float
    tool: str
    arguments: str
    result: str
    failed: bool
    picture: Path


@dataclass
class RecordedTrace:
    """The calls of a recording, and its video."""

    folder: Path
    started: str = ""
    video: str = ""
    steps: list[TraceStep] = field(default_factory=list[TraceStep])
    ended: str = ""
    """The limit at which calls were no longer added; "" for none."""
    unreadable: int = 0
    """How many lines are not those of a trace; a recording that was cut ends with one."""

    @property
    def video_type(self) -> str:
        """The media type of the video."""
        return _VIDEOS[self.video]


def read_format(path: Path) -> str:
    """Return what the first line says that a file is; "" where it says nothing."""
    with path.open("rb") as file:
        line = _object(file.readline(_LARGEST_LINE)) or {}
    return str(line.get("format") or "")


def read_trace(path: Path) -> RecordedTrace:
    """Read a trace. What a recording that was cut lacks is left out."""
    trace = RecordedTrace(path.parent)
    with path.open("rb") as file:
        while (line := file.readline(_LARGEST_LINE)) and len(trace.steps) < _MOST_STEPS:
            _add(trace, line)
    return trace


def _add(trace: RecordedTrace, line: bytes) -> None:
    values = _object(line)
    try:
        if values is None:
            raise ValueError("no JSON object")  # noqa: TRY301 - counted below, as what else does not fit
        if "format" in values:
            trace.started = str(values.get("started") or "")
            trace.video = values["video"] if values.get("video") in _VIDEOS else ""
        elif "ended" in values:
            trace.ended = str(values["ended"])
        else:
            trace.steps.append(_step(trace.folder, values))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        trace.unreadable += 1


def _step(folder: Path, values: dict[str, Any]) -> TraceStep:
    number = int(values["step"])
    return TraceStep(
        number=number,
        at=max(0.0, float(values["at"])),
        seconds=max(0.0, float(values["seconds"])),
        tool=str(values["tool"]),
        arguments=json.dumps(values["arguments"], ensure_ascii=False, indent=1),
        result=str(values["result"]),
        failed=bool(values["failed"]),
        picture=folder / f"{number:04}.jpg",
    )


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def read_picture(path: Path) -> bytes:
    """Return a JPEG; empty where there is none."""
    data = _read(path, _LARGEST_PICTURE)
    return data if data.startswith(_JPEG) else b""


def read_video(trace: RecordedTrace, largest: int) -> bytes:
    """Return the video; empty where there is none, or it is larger."""
    return _read(trace.folder / trace.video, largest) if trace.video else b""


def video_size(trace: RecordedTrace) -> int:
    """Return the size of the video; 0 where there is none."""
    try:
        found = (trace.folder / trace.video).lstat()
    except OSError:
        return 0
    return found.st_size if trace.video and stat.S_ISREG(found.st_mode) else 0


def _read(path: Path, largest: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) and found.st_size <= largest else b""
