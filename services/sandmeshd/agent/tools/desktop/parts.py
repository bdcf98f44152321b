"""The programs that a desktop consists of. Each starts when it is first needed, and again after it died."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup

FOLDER: Final = "/tmp/.desktop"  # noqa: S108 - inside a sandbox
RFB_SOCKET: Final = f"{FOLDER}/rfb"
DISPLAY: Final = ":0"
_START_SECONDS: Final = 45.0
"""On gVisor XFCE's window manager takes 13 by itself, beside other work."""

# The X server writes its display's number, and the window manager runs a command, once they are ready.
_SERVER: Final = (
    *("Xtigervnc", DISPLAY, "-displayfd", "1", "-geometry", "1024x768", "-depth", "24", "-nolisten", "tcp", "-ac"),
    # Without a graphics card GLX is Mesa's software, 50 MB in each server whether anybody draws by it or not.
    *("-extension", "GLX"),
    *("-rfbport", "-1", "-rfbunixpath", RFB_SOCKET, "-SecurityTypes", "None", "-desktop", "sandbox"),
)
# With a second virtual desktop, a scroll on the empty one would take all windows from sight.
_ONE_DESKTOP: Final = "wmctrl -n 1"
_MANAGER: Final = ("openbox", "--startup", f"sh -c '{_ONE_DESKTOP}; echo ready'")
_PANEL: Final = ("tint2",)
# XFCE's programs keep their settings by the bus, which writes its address once it is ready.
_BUS: Final = ("dbus-daemon", "--session", "--nofork", "--print-address", f"--address=unix:path={FOLDER}/bus")
_QUIETLY: Final = f'mkdir -p -m 0700 {FOLDER}; exec "$@" 2>>{FOLDER}/log'
# For a window manager that does not say so itself.
_UNTIL_MANAGED: Final = (
    f'"$@" 2>>{FOLDER}/log & '
    "until wmctrl -m >/dev/null 2>&1; do kill -0 $! || exit; sleep 0.05; done; "
    f"{_ONE_DESKTOP}; echo ready; wait $!"
)


@dataclass
class Part:
    """A program of the desktop, and how it last ended."""

    name: str
    argv: Sequence[str]
    waits: bool = True
    """Whether it writes to its output when it is ready."""
    script: str = _QUIETLY
    """What starts it in a shell."""
    process: ProcessGroup | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and not self.process.ended.done()


class DesktopParts:
    """The parts of one sandbox's desktop."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._lock = asyncio.Lock()
        self._server = Part("the X server", _SERVER)
        self._others = _xfce() if programs.variable("SANDMESH_DESKTOP") == "xfce" else _light()
        self._notes: list[str] = []

    async def ready(self) -> None:
        """Start what does not run; `take_note` says what had died.

        Raises:
            ToolFailure: A part does not start.
        """
        parts = (self._server, *self._others)
        if all(part.runs for part in parts):
            return
        async with self._lock:
            died = self.died()
            if not self._server.runs:
                await self._start(self._server)
                # Their connections ended with it; what they were is gone in a moment.
                for part in self._others:
                    await _end(part)
            for part in self._others:
                if not part.runs:
                    await self._start(part)
        if died:
            self._notes.append(f"{died}; the desktop was started again.")

    def take_note(self) -> str:
        """Return what had died and was started again since this was last asked: a viewer may have been first."""
        notes, self._notes = self._notes, []
        return " ".join(notes)

    def died(self) -> str:
        """Return how parts that do not run now have ended, or ""."""
        return _ends((self._server, *self._others))

    def started(self) -> Sequence[Part]:
        """Return the parts with their present processes, the server first: a viewer may replace them meanwhile."""
        return [replace(part) for part in (self._server, *self._others)]

    def describe(self) -> dict[str, bool]:
        """Return which parts run."""
        return {part.argv[0]: part.runs for part in (self._server, *self._others)}

    async def _start(self, part: Part) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            argv = ["/bin/sh", "-c", part.script, part.argv[0], *part.argv]
            try:
                process = self._programs.launch(argv, writer)
            finally:
                os.close(writer)
            await process.started
            part.process = process
            if part.waits:
                await _written(reader, part)
        finally:
            os.close(reader)


async def ended(started: Sequence[Part], seconds: float) -> str:
    """Return how some of these processes have ended, or "", waiting up to so many seconds for the server's end."""
    server = started[0].process
    if server is not None:
        await asyncio.wait([asyncio.shield(server.ended)], timeout=seconds)
    return _ends(started)


def _ends(parts: Sequence[Part]) -> str:
    return "; ".join(_how(part) for part in parts if part.process is not None and not part.runs)


def _light() -> Sequence[Part]:
    return Part("the window manager", _MANAGER), Part("the panel", _PANEL, waits=False)


def _xfce() -> Sequence[Part]:
    return (
        Part("the message bus", _BUS),
        Part("the window manager", ("xfwm4",), script=_UNTIL_MANAGED),
        Part("the settings", ("xfsettingsd", "--no-daemon"), waits=False),
        Part("the panel", ("xfce4-panel",), waits=False),
        Part("the desktop", ("xfdesktop",), waits=False),
    )


async def _written(reader: int, part: Part) -> None:
    """Wait for a part's first line: it must find a reader for all of it."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bool] = loop.create_future()

    def read() -> None:
        data = os.read(reader, 100)
        if not line.done() and (not data or b"\n" in data):
            line.set_result(bool(data))

    loop.add_reader(reader, read)
    try:
        async with asyncio.timeout(_START_SECONDS):
            ready = await line
    except TimeoutError:
        ready = False
    finally:
        loop.remove_reader(reader)
    if not ready:
        await _end(part)
        raise ToolFailure(f"The desktop could not be started: {_how(part)}; {FOLDER}/log in the sandbox has its words.")


async def _end(part: Part) -> None:
    if part.process is not None:
        part.process.stop()
        await asyncio.shield(part.process.ended)


def _how(part: Part) -> str:
    ended = part.process.ended.result() if part.process is not None else ProcessEnd()
    if ended.failure:
        return f"{part.name} ({part.argv[0]}) did not run: {ended.failure}"
    by = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
    return f"{part.name} ({part.argv[0]}) ended with {by}"
