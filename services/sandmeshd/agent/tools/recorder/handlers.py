"""The handlers that start and stop the recording of a sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from sandmesh._tools import Tool
from sandmesh._tools.desktop import StartRecording, StopRecording
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.tools.desktop.parts import DISPLAY, DesktopParts
from sandmeshd.agent.tools.recorder.trace import FILE, Trace
from sandmeshd.agent.tools.recorder.video import Video, VideoOptions, images, screen, start_video

_TRACE_SHARE: Final = 4
"""Of the bytes of a recording, one in so many is for the trace."""
_PIPE: Final = "/tmp/.screencast"  # noqa: S108 - inside a sandbox
_OVERSHOOT: Final = 512 << 10
"""How much more ffmpeg may write than it is told: it ends after the fragment with which it has written enough."""
_MAKE: Final = 'if [ -e "$1" ]; then echo "$1 exists"; exit 1; fi; mkdir -p -- "$1"'


class Page(Protocol):
    """A browser that streams images of its page."""

    async def cast(self, path: str, fps: int) -> None:
        """Stream to a pipe."""
        ...

    async def end_cast(self) -> None:
        """End that."""
        ...


def make_recorder(programs: Programs) -> Recorder:
    """Return what records a sandbox; nothing is recorded yet."""
    return Recorder(programs, Trace(programs))


class Recorder:
    """The recording of a sandbox: one at a time."""

    def __init__(self, programs: Programs, trace: Trace) -> None:
        self._programs = programs
        self.trace = trace
        self.parts: DesktopParts | None = None
        """The desktop whose screen is recorded; None where there is none."""
        self.page: Page | None = None
        """The browser whose page is recorded where there is no desktop."""
        self._video: Video | None = None
        self._folder: str | None = None
        self._name = ""
        self._turn = asyncio.Lock()

    @property
    def filming(self) -> bool:
        """Whether a video of the screen is being recorded."""
        return self._video is not None and self._video.runs

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {StartRecording: self.start, StopRecording: self.stop}

    async def start(self, request: StartRecording, call: RunningCall) -> Outcome:
        """Start a recording."""
        call.started()
        async with self._turn:
            if self._folder is not None:
                raise ToolFailure(f"A recording to {self._folder} is under way: stop it first.")
            now = datetime.now(UTC)
            folder = _inside(request.folder or f"recordings/{now:%Y%m%d-%H%M%S-%f}")
            made = await self._programs.capture(["/bin/sh", "-c", _MAKE, "make", folder], {}, call)
            if made.ended.exit_code != 0:
                why = (made.stdout + made.stderr).decode("utf-8", "replace").strip()
                raise ToolFailure(f"The folder {folder} could not be made: {why}. Pass another.")
            self._name = "" if request.video == "none" else f"video.{request.video}"
            self._video = await self._film(request, f"{folder}/{self._name}")
            header = {"started": now.isoformat(), "video": self._name or None}
            await self.trace.open(folder, request.max_bytes // _TRACE_SHARE, header)
            self._folder = folder
        return await _values(call, {"folder": folder, "video": self._name and f"{folder}/{self._name}"})

    async def _film(self, request: StartRecording, path: str) -> Video | None:
        if request.video == "none":
            return None
        room = request.max_bytes - request.max_bytes // _TRACE_SHARE - _OVERSHOOT
        options = VideoOptions(request.video, request.fps, request.max_seconds, room)
        if self.parts is not None:
            await self.parts.ready()
            video = await start_video(self._programs, screen(DISPLAY, request.fps), path, options)
        else:
            video = await self._film_page(path, options)
        await video.started()
        return video

    async def _film_page(self, path: str, options: VideoOptions) -> Video:
        video = await start_video(self._programs, images(_PIPE, options.fps), path, options)
        if self.page is None:
            return video
        casting = asyncio.create_task(self.page.cast(_PIPE, options.fps))
        first: tuple[asyncio.Future[Any], ...] = (casting, video.ended)
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if video.runs:
                await casting
        except BaseException:
            await video.stop()
            raise
        finally:
            casting.cancel()
        return video

    async def stop(self, request: StopRecording, call: RunningCall) -> Outcome:
        """End the recording and say what it has."""
        del request
        call.started()
        async with self._turn:
            folder, self._folder = self._folder, None
            if folder is None:
                raise ToolFailure("No recording is under way: start one first.")
            await self.trace.close()
            ended, seconds = "stopped", 0.0
            video, self._video = self._video, None
            if video is not None:
                ended = await video.stop()
                if self.page is not None:
                    await self.page.end_cast()
                seconds = video.seconds
        path = self._name and f"{folder}/{self._name}"
        found: dict[str, Any] = {"folder": folder, "video": path, "trace": f"{folder}/{FILE}"}
        found |= {"seconds": round(seconds, 3), "bytes": _size(self._programs.workspace, path)}
        return await _values(call, {**found, "steps": self.trace.steps, "ended": ended})


def _inside(folder: str) -> str:
    path = PurePosixPath(folder)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in folder:
        raise ToolFailure(f"{folder!r} is not a folder below the workspace: pass a relative path, like recordings/one.")
    # ffmpeg and the shell take what begins with a dash as an option.
    return f"./{path}" if folder.startswith("-") else str(path)


def _size(workspace: str, path: str) -> int:
    try:
        return Path(workspace, path).lstat().st_size if path else 0
    except OSError:
        return 0


async def _values(call: RunningCall, values: Mapping[str, Any]) -> Outcome:
    encoded = json.dumps(values)
    await call.text(encoded, "stdout")
    return Outcome(reason=pb.END_REASON_EXITED, structured=encoded.encode())
