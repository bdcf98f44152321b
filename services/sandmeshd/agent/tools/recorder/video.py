"""A video of the screen or of a browser's page, by ffmpeg.

It is written so that a file whose end is missing still plays: MP4 in fragments of half a second, WebM in clusters.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import Final, Literal

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup

Form = Literal["mp4", "webm"]
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02
_MISSING: Final = 127
# The pixel format that every player has wants even sides.
_EVEN: Final = "crop=trunc(iw/2)*2:trunc(ih/2)*2"
_FORMS: Final[dict[Form, tuple[str, ...]]] = {
    "mp4": (
        *("-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency", "-crf", "26", "-threads", "1"),
        *("-maxrate", "4M", "-bufsize", "2M"),
        *("-movflags", "+empty_moov+default_base_moof", "-frag_duration", "500000"),
    ),
    "webm": (
        *("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-crf", "20", "-b:v", "2M", "-threads", "1"),
        *("-cluster_time_limit", "500"),
    ),
}
_PAGE: Final = "scale=1280:720:force_original_aspect_ratio=decrease,pad=1280:720:(ow-iw)/2:(oh-ih)/2,setsar=1"
# The pipe is opened for both: it does not end with who writes to it.
_RUN: Final = """
command -v ffmpeg >/dev/null || exit 127
pipe=$1; shift
[ -z "$pipe" ] && exec nice -n 5 ffmpeg "$@"
rm -f "$pipe" && mkfifo -m 0600 "$pipe" && exec nice -n 5 ffmpeg "$@" 0<>"$pipe"
"""


@dataclass(frozen=True)
class VideoOptions:
    """What is recorded, and how much of it at most."""

    form: Form
    fps: int
    max_seconds: float
    max_bytes: int


@dataclass(frozen=True)
class VideoSource:
    """What is recorded: ffmpeg's arguments for it, a filter, and the pipe that is to be made for it."""

    arguments: tuple[str, ...]
    filter: str
    pipe: str = ""


class Video:
    """A video that is being recorded."""

    def __init__(self, options: VideoOptions, process: ProcessGroup, tail: StderrTail) -> None:
        self._options = options
        self._process = process
        self._tail = tail

    @property
    def runs(self) -> bool:
        """Whether it goes on."""
        return not self._process.ended.done()

    @property
    def ended(self) -> asyncio.Future[ProcessEnd]:
        """Done when it has ended."""
        return self._process.ended

    @property
    def seconds(self) -> float:
        """Return how long it is, as far as ffmpeg has said."""
        return int(self._last("out_time_us")) / 1e6

    async def started(self) -> None:
        """Wait for the first frame.

        Raises:
            ToolFailure: There is none; the message says why.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                # What ffmpeg writes is read when the tail has time for it.
                while self.runs and not int(self._last("frame")):  # noqa: ASYNC110 - see above
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            await self._kill()
        if not self.runs:
            self._tail.close()
            raise ToolFailure(f"No video could be recorded: {self._why()}")

    async def stop(self) -> str:
        """End it; return why it had ended before, or "stopped"."""
        by_itself = not self.runs
        if not by_itself:
            self._process.signal(signal.SIGINT)
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await asyncio.shield(self._process.ended)
            except TimeoutError:
                await self._kill()
        self._tail.close()
        return self._why() if by_itself else "stopped"

    async def _kill(self) -> None:
        self._process.stop()
        await asyncio.shield(self._process.ended)

    def _last(self, name: str) -> str:
        """Return the last value of a name that ffmpeg reports its progress with; "0" for none."""
        values = [line.partition("=")[2] for line in self._tail.lines() if line.startswith(f"{name}=")]
        return values[-1] if values and values[-1].isdigit() else "0"

    def _why(self) -> str:
        ended = self._process.ended.result()
        if ended.exit_code == _MISSING:
            return (
                "the sandbox has no ffmpeg. Add the Debian package ffmpeg to the template's system and build it by "
                "`sandmesh build`, or record without a video."
            )
        if ended.exit_code == 0:
            if self.seconds >= self._options.max_seconds - 1:
                return f"the limit of {self._options.max_seconds:g} s was reached"
            if int(self._last("total_size")) >= self._options.max_bytes:
                return f"the limit of {self._options.max_bytes} bytes was reached"
        words = [line for line in self._tail.lines() if "=" not in line.partition(" ")[0]]
        return f"ffmpeg ended with {_how(ended)}: {' '.join(words[-3:]) or 'it said nothing'}"


def _how(ended: ProcessEnd) -> str:
    if ended.failure:
        return ended.failure
    return f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"


def screen(display: str, fps: int) -> VideoSource:
    """Return the screen of an X server."""
    return VideoSource(("-f", "x11grab", "-framerate", str(fps), "-i", display), _EVEN)


def images(pipe: str, fps: int) -> VideoSource:
    """Return the JPEGs that are written to a pipe, which is made, when they come; they may change their size."""
    form = ("-f", "image2pipe", "-c:v", "mjpeg", "-probesize", "32", "-analyzeduration", "0")
    return VideoSource((*form, "-use_wallclock_as_timestamps", "1", "-i", "pipe:0"), f"fps={fps},{_PAGE}", pipe)


async def start_video(programs: Programs, source: VideoSource, path: str, options: VideoOptions) -> Video:
    """Start to record to a new file of the workspace. `Video.started` waits for the first frame.

    Raises:
        ToolFailure: No process can be started.
    """
    tail = StderrTail()
    bounds = ("-t", f"{options.max_seconds:g}", "-fs", str(options.max_bytes))
    argv = ["-nostdin", "-hide_banner", "-loglevel", "error", "-progress", "pipe:1", "-stats_period", "0.2"]
    argv += [*source.arguments, *bounds, "-vf", source.filter, *_FORMS[options.form], "-pix_fmt", "yuv420p"]
    argv += ["-flush_packets", "1", f"file:{path}"]
    try:
        process = programs.launch(["/bin/sh", "-c", _RUN, "record", source.pipe, *argv], tail.writer)
    finally:
        tail.close_writer()
    await process.started
    return Video(options, process, tail)
