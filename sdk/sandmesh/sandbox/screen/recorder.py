"""Recordings of a desktop or a browser: `box.desktop.record()` and `box.browser.record()`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from sandmesh._client.sync import Facade, blocking
from sandmesh._tools import Tool, build
from sandmesh._tools.desktop import StartRecording, StopRecording
from sandmesh.errors import WrongState
from sandmesh.results import ToolResult

Video = Literal["mp4", "webm", "none"]


@dataclass(frozen=True)
class Recorded:
    """A recording that has ended. Paths are relative to the workspace; `video` is "" where none was made."""

    folder: str
    video: str
    trace: str
    seconds: float
    """The length of the video."""
    bytes: int
    """The size of the video."""
    steps: int
    """How many calls the trace has."""
    ended: str
    """Why the video ended: "stopped", or the limit that was reached, or what went wrong; it plays up to there."""


class RecordingAsync:
    """A recording: from `start` to `stop`, or while a block runs."""

    def __init__(self, call: Callable[[Tool], Awaitable[ToolResult]], options: StartRecording) -> None:
        self._call = call
        self._options = options
        self._folder = ""
        self._result: Recorded | None = None

    @property
    def folder(self) -> str:
        """The folder of the workspace that has it, once it was started.

        Raises:
            WrongState: It was not started.
        """
        if not self._folder:
            raise WrongState("the recording was not started: enter it by `with`, or start() it", {"state": "NEW"})
        return self._folder

    @property
    def result(self) -> Recorded:
        """What was recorded, once it was stopped.

        Raises:
            WrongState: It was not stopped.
        """
        if self._result is None:
            raise WrongState("the recording was not stopped: stop() it first", {"state": "RECORDING"})
        return self._result

    async def start(self) -> Self:
        """Start it; the first frame of the video was taken when this returns.

        Raises:
            WrongState: Another recording is under way, the folder exists, or the screen cannot be recorded.
        """
        self._folder = str((await self._run(self._options))["folder"])
        return self

    async def stop(self) -> Recorded:
        """End it and return what it has.

        Raises:
            WrongState: No recording is under way.
        """
        self._result = Recorded(**(await self._run(build(StopRecording))))
        return self._result

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Stop."""
        await self.stop()

    async def _run(self, declaration: Tool) -> dict[str, Any]:
        result = await self._call(declaration)
        if result.is_error:
            raise WrongState(result.text.strip(), {"state": "RECORDING", "tool": declaration.name})
        return result.structured or {}


class Recording(Facade):
    """A recording: from `start` to `stop`, or while a block runs."""

    def __init__(self, twin: RecordingAsync) -> None:
        self.twin: RecordingAsync = twin

    @property
    def folder(self) -> str:
        """The folder of the workspace that has it, once it was started.

        Raises:
            WrongState: It was not started.
        """
        return self.twin.folder

    @property
    def result(self) -> Recorded:
        """What was recorded, once it was stopped.

        Raises:
            WrongState: It was not stopped.
        """
        return self.twin.result

    def start(self) -> Self:
        """Start it; the first frame of the video was taken when this returns.

        Raises:
            WrongState: Another recording is under way, the folder exists, or the screen cannot be recorded.
        """
        self._start()
        return self

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        """Stop."""
        self.stop()

    _start = blocking(RecordingAsync.start)
    stop = blocking(RecordingAsync.stop)
