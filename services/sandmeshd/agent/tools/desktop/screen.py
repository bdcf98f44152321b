"""The screen, the mouse and the keyboard of a desktop, by xdotool, scrot, xclip, wmctrl and xrandr."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.tools.desktop.keyboard import Keyboard
from sandmeshd.agent.tools.desktop.keys import released
from sandmeshd.agent.tools.desktop.parts import DISPLAY, DesktopParts, Part, ended

_VARIABLES: Final = {"DISPLAY": DISPLAY, "LC_ALL": "C.UTF-8"}
_CONVERT: Final = """
import sys
from io import BytesIO
from PIL import Image
scale, form = float(sys.argv[1]), sys.argv[2]
image = Image.open(BytesIO(sys.stdin.buffer.read())).convert("RGB")
if scale != 1:
    size = [max(1, round(side * scale)) for side in image.size]
    image = image.resize(size, Image.Resampling.LANCZOS)
image.save(sys.stdout.buffer, form.upper())
"""
# A program draws what a key or a click leads to a moment later.
_PICTURE: Final = 'sleep 0.2; DISPLAY=$1 exec scrot -p -q 60 -o "$2"'
_MOST_PIXELS: Final = 64_000_000
_LISTING_SECONDS: Final = 10.0
_LISTING_PAUSE_SECONDS: Final = 0.1
_DEATH_SECONDS: Final = 1.0
_SLOW_DEATH_SECONDS: Final = 10.0
_NO_SERVER: Final = re.compile(rb"X connection|XIO|open display", re.IGNORECASE)
_PLACE: Final = re.compile(rb"^ +(0x[0-9a-f]+) .* (\d+)x(\d+)\+-?\d+\+-?\d+ +\+(-?\d+)\+(-?\d+)$", re.MULTILINE)
_MOVED: Final = "The windows changed while they were listed: try again."
_CHANGED: Final = ("BadWindow", "Bad Window", "Bad Drawable", _MOVED)
"""What wmctrl, xwininfo and the list itself report of a window that ended meanwhile."""
_NO_KEY: Final = re.compile(rb"No such key name '([^']*)'")


@dataclass(frozen=True)
class ScreenSize:
    """The size of a screen."""

    width: int
    height: int

    def check(self, x: float, y: float, what: str) -> tuple[int, int]:
        """Return a point as whole pixels.

        Raises:
            ToolFailure: It is not on the screen.
        """
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise ToolFailure(f"{what} ({x:g}, {y:g}) is outside of the screen, which is {self.width}x{self.height}.")
        return int(x), int(y)


class Screen:
    """The screen of one sandbox; its desktop is started when it is first used."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self.parts = DesktopParts(programs)
        self._keyboard = Keyboard()

    async def run(self, call: RunningCall, *argv: str) -> bytes:
        """Run a program of the desktop and return its output.

        Raises:
            ToolFailure: It failed; the message has what it wrote.
        """
        await self.parts.ready()
        note = self.parts.take_note()
        if note:
            self._keyboard.forget()
        started = self.parts.started()
        done = await self._programs.capture(argv, _VARIABLES, call)
        if missing := _NO_KEY.search(done.stderr):
            name = missing[1].decode("utf-8", "replace")
            raise ToolFailure(f"There is no key {name!r}: use names like Return, Tab, ctrl+s, F5, or type the text.")
        if done.ended.exit_code != 0:
            said = (done.ended.failure or done.stderr.decode("utf-8", "replace")).strip()
            died = await self._died(call, started, done.stderr)
            raise ToolFailure(" ".join(filter(None, (f"{argv[0]} failed: {said or done.ended}.", note, died))))
        if note:
            await call.text(note, "stderr")
        return done.stdout

    async def _died(self, call: RunningCall, started: Sequence[Part], said: bytes) -> str:
        """Return what ended beneath a program that failed, if that is why."""
        without_server = _NO_SERVER.search(said) is not None
        # The program may notice before the exit of its server is seen.
        died = await ended(started, _DEATH_SECONDS if without_server else 0)
        if without_server and not died and not await self._answers(call):
            died = await ended(started, _SLOW_DEATH_SECONDS)
        return f"{died}: the next call starts the desktop again." if died else ""

    async def _answers(self, call: RunningCall) -> bool:
        """Return whether the X server accepts connections."""
        answer = await self._programs.capture(("xdotool", "getdisplaygeometry"), _VARIABLES, call)
        return answer.ended.exit_code == 0

    async def mouse(self, call: RunningCall, *words: str) -> None:
        """Run one or more commands of xdotool; what they held down when they were ended is released."""
        try:
            await self.run(call, "xdotool", *words)
        except asyncio.CancelledError:
            if release := released(words):
                await self._programs.capture(("xdotool", *release), _VARIABLES, None)
            raise

    async def size(self, call: RunningCall) -> ScreenSize:
        """Return the screen's size."""
        width, height = (await self.run(call, "xdotool", "getdisplaygeometry")).split()
        return ScreenSize(int(width), int(height))

    async def cursor(self, call: RunningCall) -> tuple[int, int]:
        """Return the mouse's position."""
        found = await self.run(call, "xdotool", "getmouselocation", "--shell")
        values = dict(line.split("=", 1) for line in found.decode().splitlines())
        return int(values["X"]), int(values["Y"])

    async def type(self, call: RunningCall, text: str) -> None:
        """Type a text in any script."""

        def run(*argv: str) -> Awaitable[bytes]:
            return _to_its_end(self.run(call, *argv))

        await self._keyboard.type(run, text)

    async def set_layout(self, call: RunningCall, layout: str, variant: str) -> None:
        """Change the keyboard's layout.

        Raises:
            ToolFailure: There is none of the name.
        """
        # The keys of earlier texts are mapped again with all others.
        self._keyboard.forget()
        name = f"{layout}({variant})" if variant else layout
        try:
            # The second one has what shortcuts are named by, where the first has no Latin letters.
            await self.run(call, "setxkbmap", "-layout", f"{layout},us", "-variant", f"{variant},")
        except ToolFailure as error:
            if "Error loading" not in str(error):
                raise
            known = "/usr/share/X11/xkb/rules/base.lst in the sandbox lists those there are"
            raise ToolFailure(f"There is no keyboard layout {name}: {known}.") from None

    async def image(self, call: RunningCall, region: Sequence[int] | None, scale: float, form: str) -> bytes:
        """Take an image of the screen or a region (left, top, right, bottom).

        Raises:
            ToolFailure: The region is empty or outside, or the image would be too large.
        """
        size = await self.size(call)
        left, top, right, bottom = (0, 0, size.width, size.height) if region is None else _corners(region)
        if not (0 <= left < right <= size.width and 0 <= top < bottom <= size.height):
            here = f"the screen is {size.width}x{size.height}"
            raise ToolFailure(f"The region {left}, {top}, {right}, {bottom} is empty or outside: {here}.")
        if (right - left) * (bottom - top) * scale * scale > _MOST_PIXELS:
            raise ToolFailure(f"The image would have more than {_MOST_PIXELS} pixels: use a smaller scale or region.")
        area = () if region is None else ("-a", f"{left},{top},{right - left},{bottom - top}")
        shot = ("scrot", "-p", *area, "-")
        if scale == 1 and form == "png":
            return await self.run(call, *shot)
        script = 'convert=$1 scale=$2 form=$3; shift 3; "$@" | python -c "$convert" "$scale" "$form"'
        return await self.run(call, "/bin/sh", "-c", script, "convert", _CONVERT, str(scale), form, *shot)

    async def picture(self, path: str) -> None:
        """Write a small image of the screen to a file of the workspace; nothing where no desktop runs."""
        if not all(self.parts.describe().values()):
            return
        with open(os.devnull, "wb") as null:  # noqa: ASYNC230, PTH123 - a device
            process = self._programs.launch(["/bin/sh", "-c", _PICTURE, "picture", DISPLAY, path], null.fileno())
        await process.started
        await process.ended

    async def windows(self, call: RunningCall) -> list[dict[str, Any]]:
        """Return the windows from the bottom to the top."""
        # A window that has closed fails the whole list until the window manager has noticed, which may be busy.
        until = time.monotonic() + _LISTING_SECONDS
        while True:
            try:
                return await self._list(call)
            except ToolFailure as error:
                if "client list" in str(error):
                    # There is none before the first window.
                    return []
                if not any(each in str(error) for each in _CHANGED) or time.monotonic() > until:
                    raise
            await asyncio.sleep(_LISTING_PAUSE_SECONDS)

    async def _list(self, call: RunningCall) -> list[dict[str, Any]]:
        rows = [line.split(None, 4) for line in (await self.run(call, "wmctrl", "-lp")).decode().splitlines()]
        # wmctrl's own positions count a window's frame twice.
        tree = await self.run(call, "xwininfo", "-root", "-tree")
        places = {int(each[0], 16): [int(number) for number in each[1:]] for each in _PLACE.findall(tree)}
        rows = [row for row in rows if row[1] != "-1"]
        if any(int(row[0], 16) not in places for row in rows):
            raise ToolFailure(_MOVED)
        found: list[dict[str, Any]] = []
        for row in rows:
            width, height, x, y = places[int(row[0], 16)]
            # One that has no size yet is still being made: what is typed into it is lost.
            if (width, height) > (1, 1):
                title = row[4] if len(row) > 4 else ""
                region = [x, y, x + width, y + height]
                found.append({"window_id": row[0], "pid": int(row[2]), "region": region, "title": title})
        return found

    async def resize(self, call: RunningCall, width: int, height: int) -> None:
        """Change the screen's size."""
        mode = f"{width}x{height}"
        timings = (*[str(width)] * 4, *[str(height)] * 4)
        script = (
            'mode=$1; shift; xrandr | grep -q " $mode " || { xrandr --newmode "$mode" 0 "$@" && '
            'xrandr --addmode VNC-0 "$mode"; }; xrandr --output VNC-0 --mode "$mode"'
        )
        await self.run(call, "/bin/sh", "-c", script, "resize", mode, *timings)


async def _to_its_end(step: Coroutine[Any, Any, bytes]) -> bytes:
    """Wait for a short step, also where this is cancelled meanwhile: a key that it pressed would stay down."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _corners(region: Sequence[int]) -> Sequence[int]:
    if len(region) != 4:
        raise ToolFailure("A region has four numbers: left, top, right, bottom.")
    return region
