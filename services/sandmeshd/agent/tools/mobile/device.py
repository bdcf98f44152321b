"""What is done on a device, by commands of its shell: for a call, or (None) for a person who has taken it over."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.processes.capture import Captured
from sandmeshd.agent.processes.programs import Programs

_SERVER: Final = {"ADB_SERVER_SOCKET": "tcp:127.0.0.1:3128"}
_SIZE: Final = re.compile(r"(?:Physical|Override) size: (\d+)x(\d+)")
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}|\d{1,4}")
_OTHER_VERSION: Final = re.compile(r"adb server version \((\d+)\) doesn't match this client \((\d+)\)")
_DISCONNECTED: Final = re.compile(r"not found|no devices|offline|closed|EOF|protocol fault|reset", re.IGNORECASE)
_KEYBOARD: Final = "com.android.adbkeyboard/.AdbIME"
_LONGEST_MESSAGE: Final = 500
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ENTER, _TAB = "KEYCODE_ENTER", "KEYCODE_TAB"


@dataclass(frozen=True)
class DeviceSize:
    """The size of a screen."""

    width: int
    height: int

    def has(self, x: float, y: float) -> bool:
        """Return whether a point is on the screen, however the device is held."""
        return min(x, y) >= 0 and ((x < self.width and y < self.height) or (x < self.height and y < self.width))


class Device:
    """The device that a sandbox holds."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._size: DeviceSize | None = None

    async def size(self, call: RunningCall | None) -> DeviceSize:
        """Return the size of the screen.

        Raises:
            ToolFailure: The device does not say it.
        """
        found = _SIZE.findall(await self._shell(call, "wm", "size"))
        if not found:
            raise ToolFailure("The device does not say how large its screen is: `wm size` there has no answer.")
        # The last one is what an administrator has set, and holds.
        self._size = DeviceSize(*map(int, found[-1]))
        return self._size

    async def point(self, call: RunningCall | None, point: Sequence[float], what: str) -> tuple[int, int]:
        """Return a point as whole pixels.

        Raises:
            ToolFailure: It is not on the screen.
        """
        if len(point) != 2:
            raise ToolFailure(f"{what} must be two numbers, x and y, not {list(point)}.")
        x, y = point
        if self._size is None or not self._size.has(x, y):
            size = await self.size(call)
            if not size.has(x, y):
                message = f"{what} ({x:g}, {y:g}) is outside of the screen, which is {size.width}x{size.height}."
                raise ToolFailure(message)
        return int(x), int(y)

    async def tap(self, call: RunningCall | None, point: tuple[int, int]) -> None:
        """Tap a point."""
        await self._shell(call, "input", "tap", *map(str, point))

    async def swipe(
        self, call: RunningCall | None, start: tuple[int, int], end: tuple[int, int], milliseconds: int
    ) -> None:
        """Swipe from a point to another."""
        await self._shell(call, "input", "swipe", *map(str, (*start, *end, milliseconds)))

    async def press(self, call: RunningCall | None, code: int | str) -> str:
        """Press a key by its number or name, and return how Android calls it.

        Raises:
            ToolFailure: There is no such key.
        """
        name = str(code).strip()
        unknown = f"There is no key {code!r}: use a number like 3, or a name like HOME, BACK, ENTER or VOLUME_UP."
        if not _KEY.fullmatch(name):
            raise ToolFailure(unknown)
        key = name if name.isdecimal() else f"KEYCODE_{name.upper().removeprefix('KEYCODE_')}"
        try:
            await self._shell(call, "input", "keyevent", key)
        except ToolFailure as failure:
            raise ToolFailure(unknown) if "Unknown keycode" in str(failure) else failure from None
        return key

    async def type(self, call: RunningCall | None, text: str) -> None:
        """Type a text.

        Raises:
            ToolFailure: It is not ASCII, and the device has no keyboard for that.
        """
        if not text.isascii():
            await self._type_by_keyboard(call, text)
            return
        for piece in re.split(r"(\n|\t)", text):
            if piece in ("\n", "\t"):
                await self._shell(call, "input", "keyevent", _ENTER if piece == "\n" else _TAB)
            # `input` takes %s for a space, so a text that has it is typed in two.
            for part in re.split(r"(?<=%)(?=s)", piece.strip("\n\t")):
                if part:
                    await self._shell(call, "input", "text", part.replace(" ", "%s"))

    async def _type_by_keyboard(self, call: RunningCall | None, text: str) -> None:
        if _KEYBOARD not in (await self._shell(call, "ime", "list", "-a", "-s")).split():
            message = (
                "The text is not ASCII, which Android's `input text` does not type. The administrator of the device "
                "installs ADBKeyboard (com.android.adbkeyboard) on it for that."
            )
            raise ToolFailure(message)
        before = (await self._shell(call, "settings", "get", "secure", "default_input_method")).strip()
        await self._shell(call, "ime", "enable", _KEYBOARD)
        await self._shell(call, "ime", "set", _KEYBOARD)
        try:
            encoded = base64.b64encode(text.encode()).decode()
            await self._shell(call, "am", "broadcast", "-a", "ADB_INPUT_B64", "--es", "msg", encoded)
        finally:
            if before not in ("", "null", _KEYBOARD):
                await self._shell(call, "ime", "set", before)

    async def picture(self, call: RunningCall | None) -> bytes:
        """Return an image of the screen as a PNG.

        Raises:
            ToolFailure: The device takes none.
        """
        done = await self._run(call, "exec-out", "screencap", "-p")
        if not done.stdout.startswith(_PNG):
            raise ToolFailure(f"The device took no screenshot: {_said(done) or 'it wrote nothing'}.")
        return done.stdout

    async def _shell(self, call: RunningCall | None, *words: str) -> str:
        done = await self._run(call, "shell", shlex.join(words))
        return done.stdout.decode("utf-8", "replace")

    async def _run(self, call: RunningCall | None, *words: str) -> Captured:
        done = await self._programs.capture(("adb", *words), _SERVER, call)
        if done.ended.exit_code == 0 and b"Error: Unknown keycode" not in done.stdout + done.stderr:
            return done
        said = _said(done)
        if version := _OTHER_VERSION.search(done.stderr.decode("utf-8", "replace")):
            message = (
                f"The node's adb server has version {version[1]}, and the sandbox's adb {version[2]}: the "
                "administrator runs the same release of adb on the node as sandboxes have (`adb --version` in both)."
            )
            raise ToolFailure(message)
        if _DISCONNECTED.search(said) or not said:
            self._size = None
            state = await self._programs.capture(("adb", "get-state"), _SERVER, call)
            if state.stdout.strip() != b"device":
                raise ToolFailure(f"The device is disconnected: {_said(state) or said or 'adb does not say why'}.")
        raise ToolFailure(f"`adb {' '.join(words)}` failed: {said or done.ended}.")


def _said(done: Captured) -> str:
    text = done.ended.failure or (done.stderr + done.stdout).decode("utf-8", "replace")
    return " ".join(text.split())[-_LONGEST_MESSAGE:].rstrip(".")
