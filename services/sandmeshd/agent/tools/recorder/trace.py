"""A trace: a line of JSON for each call of a tool, and a picture of what it led to.

Its files are written by processes of user code, as everything in the workspace is that belongs to the user.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.processes.programs import Programs

FILE: Final = "trace.jsonl"
MOST_STEPS: Final = 5000
_MOST_TEXT: Final = 8000
_MOST_ARGUMENTS: Final = 32_000
_PICTURE_SECONDS: Final = 15.0
_APPEND: Final = 'printf "%s\\n" "$1" >>"$2"'

Picture = Callable[[str], Awaitable[None]]
"""Writes a picture of what is shown now to a new file of the workspace, or nothing where nothing is shown."""


@dataclass
class TracedCall:
    """What is known of a call; its handler sets `result`."""

    result: str = ""
    failed: bool = False


class Trace:
    """The trace of one sandbox, which is open at times."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._folder: str | None = None
        self._began = 0.0
        self._room = 0
        self._last: asyncio.Task[None] | None = None
        self.steps = 0
        self.full = ""
        """Why nothing is added any more; "" where it is."""

    async def open(self, folder: str, max_bytes: int, header: Mapping[str, Any]) -> None:
        """Begin a trace in a folder of the workspace."""
        self._began, self.steps, self._room, self.full = time.monotonic(), 0, max_bytes, ""
        await self._append(folder, {"format": "sandmesh-trace", "version": 1, **header})
        self._folder = folder

    async def close(self) -> None:
        """End the trace, its last picture included."""
        folder, self._folder = self._folder, None
        await self._settle()
        if folder is not None and self.full:
            await self._append(folder, {"ended": self.full})

    @asynccontextmanager
    async def step(self, tool: str, arguments: Mapping[str, Any], picture: Picture) -> AsyncGenerator[TracedCall]:
        """Add a call while it is carried out; the picture is taken after it, before the next one begins."""
        step = TracedCall()
        folder = self._folder
        if folder is None or self.full:
            yield step
            return
        await self._settle()
        at = time.monotonic()
        try:
            yield step
        except ToolFailure as failure:
            step.failed, step.result = True, str(failure)
            raise
        finally:
            self.steps += 1
            name = f"{self.steps:04}.jpg"
            line: dict[str, Any] = {
                "step": self.steps,
                "at": round(at - self._began, 3),
                "seconds": round(time.monotonic() - at, 3),
            }
            line |= {"tool": tool, "arguments": _short(arguments), "result": step.result[:_MOST_TEXT]}
            line |= {"failed": step.failed, "picture": name}
            self._last = asyncio.create_task(self._add(self._last, folder, line, picture))

    async def _add(
        self, previous: asyncio.Task[None] | None, folder: str, line: Mapping[str, Any], picture: Picture
    ) -> None:
        if previous is not None:
            await previous
        await self._append(folder, line)
        path = f"{folder}/{line['picture']}"
        with suppress(ToolFailure, TimeoutError):
            async with asyncio.timeout(_PICTURE_SECONDS):
                await picture(path)
        self._room -= len(json.dumps(line)) + _size(Path(self._programs.workspace, path))
        if self._room <= 0:
            self.full = "size"
        elif self.steps >= MOST_STEPS:
            self.full = "steps"

    async def _settle(self) -> None:
        if self._last is not None:
            await asyncio.shield(self._last)

    async def _append(self, folder: str, line: Mapping[str, Any]) -> None:
        argv = ["/bin/sh", "-c", _APPEND, "append", json.dumps(line), f"{folder}/{FILE}"]
        with suppress(ToolFailure):
            process = self._programs.launch(argv, self._null)
            await process.started
            await process.ended


def _short(arguments: Mapping[str, Any]) -> Any:
    """Return what was passed, without what was not and without the most of very long texts."""
    passed = {name: value for name, value in arguments.items() if value is not None}
    kept = {name: value[:_MOST_TEXT] if isinstance(value, str) else value for name, value in passed.items()}
    encoded = json.dumps(kept)
    return kept if len(encoded) <= _MOST_ARGUMENTS else {"truncated": encoded[:_MOST_TEXT]}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
