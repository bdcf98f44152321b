"""The actions of `computer_use`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from sandmesh._tools.desktop import ComputerUse
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import RunningCall
from sandmeshd.agent.tools.desktop.keys import chord, chords
from sandmeshd.agent.tools.desktop.screen import Screen

_CLICKS: Final = {
    "left_click": ("1", "1"),
    "middle_click": ("2", "1"),
    "right_click": ("3", "1"),
    "double_click": ("1", "2"),
    "triple_click": ("1", "3"),
    "back_click": ("8", "1"),
    "forward_click": ("9", "1"),
}
"""The button of each click, and how often it is pressed."""
_WHEEL: Final = {"up": "4", "down": "5", "left": "6", "right": "7"}

Done = dict[str, Any] | bytes
"""What an action returns: plain values, or an image."""


class Actions:
    """The actions on one screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._by_name: dict[str, Callable[[ComputerUse, RunningCall], Awaitable[Done]]] = {
            **dict.fromkeys(_CLICKS, self._click),
            **dict.fromkeys(("cursor_position", "get_cursor_position"), self._position),
            **dict.fromkeys(("screenshot", "get_screenshot", "zoom"), self._picture),
            **dict.fromkeys(("left_mouse_down", "left_mouse_up"), self._button),
            "mouse_move": self._move,
            "left_click_drag": self._drag,
            "scroll": self._scroll,
            "type": self._type,
            "key": self._key,
            "hold_key": self._hold,
            "wait": self._wait,
        }

    async def run(self, request: ComputerUse, call: RunningCall) -> Done:
        """Carry an action out.

        Raises:
            ToolFailure: A parameter is missing, or a coordinate is outside of the screen.
        """
        return await self._by_name[request.action](request, call)

    async def _point(self, point: Sequence[float] | None, call: RunningCall, what: str) -> list[str]:
        """Return xdotool's words that move the mouse to a point; none for none."""
        if point is None:
            return []
        if len(point) != 2:
            raise ToolFailure(f"{what} must be two numbers, x and y, not {list(point)}.")
        x, y = (await self._screen.size(call)).check(point[0], point[1], what)
        return ["mousemove", str(x), str(y)]

    async def _required(self, request: ComputerUse, call: RunningCall) -> list[str]:
        if request.coordinate is None:
            raise ToolFailure(f"{request.action} needs a coordinate, like [100, 200].")
        return await self._point(request.coordinate, call, f"{request.action}: coordinate")

    async def _click(self, request: ComputerUse, call: RunningCall) -> Done:
        button, times = _CLICKS[request.action]
        there = await self._point(request.coordinate, call, f"{request.action}: coordinate")
        click = ["click", "--repeat", times, "--delay", "60", button]
        await self._held(request, call, [*there, *click])
        return {"ok": True}

    async def _held(self, request: ComputerUse, call: RunningCall, words: Sequence[str]) -> None:
        """Run xdotool's words while the keys of the request's text are held."""
        held = chords(request.text or "")
        down = [word for key in held for word in ("keydown", key)]
        up = [word for key in reversed(held) for word in ("keyup", key)]
        await self._screen.mouse(call, *down, *words, *up)

    async def _move(self, request: ComputerUse, call: RunningCall) -> Done:
        await self._screen.mouse(call, *await self._required(request, call))
        return {"ok": True}

    async def _drag(self, request: ComputerUse, call: RunningCall) -> Done:
        end = await self._required(request, call)
        start = await self._point(request.start_coordinate, call, "left_click_drag: start_coordinate")
        await self._held(request, call, [*start, "mousedown", "1", *end, "mouseup", "1"])
        return {"ok": True}

    async def _button(self, request: ComputerUse, call: RunningCall) -> Done:
        there = await self._point(request.coordinate, call, f"{request.action}: coordinate")
        await self._screen.mouse(call, *there, "mousedown" if request.action.endswith("down") else "mouseup", "1")
        return {"ok": True}

    async def _scroll(self, request: ComputerUse, call: RunningCall) -> Done:
        if request.scroll_direction is None:
            raise ToolFailure("scroll needs a scroll_direction: up, down, left or right.")
        there = await self._point(request.coordinate, call, "scroll: coordinate")
        wheel = ["click", "--repeat", str(request.scroll_amount), "--delay", "15", _WHEEL[request.scroll_direction]]
        await self._held(request, call, [*there, *wheel])
        return {"ok": True}

    async def _type(self, request: ComputerUse, call: RunningCall) -> Done:
        if not request.text:
            raise ToolFailure("type needs a text.")
        await self._screen.type(call, request.text)
        return {"ok": True}

    async def _key(self, request: ComputerUse, call: RunningCall) -> Done:
        if not request.text or not request.text.strip():
            raise ToolFailure('key needs a text that names keys, like "Return" or "ctrl+s".')
        await self._screen.mouse(call, "key", "--clearmodifiers", *chords(request.text))
        return {"ok": True}

    async def _hold(self, request: ComputerUse, call: RunningCall) -> Done:
        if not request.text or not request.text.strip():
            raise ToolFailure('hold_key needs a text that names keys, like "shift".')
        keys = chord(request.text)
        await self._screen.mouse(call, "keydown", keys, "sleep", f"{request.duration:g}", "keyup", keys)
        return {"ok": True}

    async def _wait(self, request: ComputerUse, call: RunningCall) -> Done:
        stopped = asyncio.Event()
        with call.stopping(stopped.set):
            try:
                async with asyncio.timeout(request.duration):
                    await stopped.wait()
            except TimeoutError:
                return {"ok": True}
        raise ToolFailure("The call was stopped while it waited.")

    async def _position(self, request: ComputerUse, call: RunningCall) -> Done:
        del request
        x, y = await self._screen.cursor(call)
        return {"x": x, "y": y}

    async def _picture(self, request: ComputerUse, call: RunningCall) -> Done:
        if request.action == "zoom" and request.region is None:
            raise ToolFailure("zoom needs a region: left, top, right, bottom.")
        return await self._screen.image(call, request.region, 1.0, "png")
