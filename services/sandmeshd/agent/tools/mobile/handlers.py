"""The handlers of the device's tools."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sandmesh._tools import Tool
from sandmesh._tools.mobile import (
    Adb,
    AdbUse,
    MobileGetScreenResolution,
    MobileGetScreenshot,
    MobileInputText,
    MobileKeyEvent,
    MobileSwipe,
    MobileTap,
)
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.tools.mobile.device import Device
from sandmeshd.agent.tools.mobile.view import DeviceViewers
from sandmeshd.agent.userland.python import content_blocks

_SWIPE_MILLISECONDS: Final = 300
_HARMLESS: Final = frozenset({"get_screen_resolution", "get_screenshot"})
"""The actions that change nothing, which work while a person has the device."""

Done = str | dict[str, Any] | bytes
"""What an action returns: a text, plain values, or an image."""
Action = Callable[[AdbUse, RunningCall], Coroutine[Any, Any, Done]]


def make_mobile(programs: Programs) -> DeviceTools:
    """Return the tools of a sandbox's device."""
    return DeviceTools(Device(programs))


class DeviceTools:
    """The tools on one device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.view = DeviceViewers(device)
        self._actions: dict[str, Action] = {
            "get_screen_resolution": self._resolution,
            "tap": self._tap,
            "swipe": self._swipe,
            "input_text": self._type,
            "key_event": self._press,
            "get_screenshot": self._picture,
        }

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        forms: dict[type[Tool], Callable[[Any], AdbUse]] = {
            AdbUse: _as_it_is,
            Adb: _as_it_is,
            MobileGetScreenResolution: lambda _: AdbUse("get_screen_resolution"),
            MobileTap: _tap_of,
            MobileSwipe: lambda one: AdbUse("swipe", start=one.start, end=one.end, duration=one.duration),
            MobileInputText: lambda one: AdbUse("input_text", text=one.text),
            MobileKeyEvent: lambda one: AdbUse("key_event", code=one.code),
            MobileGetScreenshot: lambda _: AdbUse("get_screenshot"),
        }
        return {declaration: partial(self._run, form) for declaration, form in forms.items()}

    async def _run(self, form: Callable[[Any], AdbUse], request: Tool, call: RunningCall) -> Outcome:
        call.started()
        wanted = form(request)
        work = self._actions[wanted.action](wanted, call)
        done = await (work if wanted.action in _HARMLESS else self.view.act(work))
        if isinstance(done, bytes):
            await call.content(content_blocks.encode(_image(done)))
            return Outcome(reason=pb.END_REASON_EXITED)
        text = done if isinstance(done, str) else json.dumps(done)
        await call.text(text, "stdout")
        structured = b"" if isinstance(done, str) else text.encode()
        return Outcome(reason=pb.END_REASON_EXITED, structured=structured)

    async def _resolution(self, request: AdbUse, call: RunningCall) -> Done:
        del request
        size = await self._device.size(call)
        return {"width": size.width, "height": size.height}

    async def _point(self, point: Sequence[float] | None, call: RunningCall, what: str) -> tuple[int, int]:
        if point is None:
            raise ToolFailure(f"{what} is missing: give x and y, like [100, 200].")
        return await self._device.point(call, point, what)

    async def _tap(self, request: AdbUse, call: RunningCall) -> Done:
        point = await self._point(request.coordinate, call, "coordinate")
        await self._device.tap(call, point)
        return f"Tapped at {point}"

    async def _swipe(self, request: AdbUse, call: RunningCall) -> Done:
        start = await self._point(request.start, call, "start")
        end = await self._point(request.end, call, "end")
        await self._device.swipe(call, start, end, request.duration or _SWIPE_MILLISECONDS)
        return f"Swiped from {start} to {end}"

    async def _type(self, request: AdbUse, call: RunningCall) -> Done:
        if not request.text:
            raise ToolFailure("input_text needs a text.")
        await self._device.type(call, request.text)
        return f"Input text: {request.text}"

    async def _press(self, request: AdbUse, call: RunningCall) -> Done:
        if request.code is None:
            raise ToolFailure('key_event needs a code, like 3, "HOME" or "BACK".')
        return f"Sent key event: {await self._device.press(call, request.code)}"

    async def _picture(self, request: AdbUse, call: RunningCall) -> Done:
        del request
        return await self._device.picture(call)


def _as_it_is(request: AdbUse) -> AdbUse:
    return request


def _tap_of(request: MobileTap) -> AdbUse:
    point = request.coordinate
    if point is not None and not isinstance(point, int | float):
        if request.x is not None or request.y is not None:
            raise ToolFailure("Give a coordinate, or x and y, not both.")
        return AdbUse("tap", coordinate=point)
    x = request.x if point is None else point
    if x is None or request.y is None or (point is not None and request.x is not None):
        raise ToolFailure("mobile_tap needs a coordinate like [100, 200], or x and y.")
    return AdbUse("tap", coordinate=[x, request.y])


def _image(data: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"type": "image", "data": encoded, "mimeType": "image/png", "annotations": None, "description": "stdout"}
