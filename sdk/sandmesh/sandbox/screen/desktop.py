"""The desktop of a sandbox: `box.desktop`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandmesh._client.sync import Facade, blocking, blocking_twin
from sandmesh._tools import Tool, build
from sandmesh._tools.desktop import (
    ComputerUse,
    FocusWindow,
    GetClipboard,
    GetScreen,
    LaunchProgram,
    ListWindows,
    ResizeScreen,
    SetClipboard,
    SetKeyboardLayout,
    StartRecording,
    TakeScreenshot,
)
from sandmesh.api.port.v1 import port_pb2 as pb
from sandmesh.errors import WrongState
from sandmesh.results import ToolResult
from sandmesh.sandbox.ports import PortTarget, expose
from sandmesh.sandbox.screen.computer import Computer, ComputerAsync, Vendor, computer_of
from sandmesh.sandbox.screen.model_actions import translate
from sandmesh.sandbox.screen.recorder import Recording, RecordingAsync, Video


@dataclass(frozen=True)
class ScreenInfo:
    """The screen: its size, the position of the mouse, and which programs of the desktop run."""

    width: int
    height: int
    cursor: tuple[int, int]
    parts: Mapping[str, bool]


@dataclass(frozen=True)
class Window:
    """A window; `region` is left, top, right and bottom in pixels."""

    window_id: str
    pid: int
    region: tuple[int, int, int, int]
    title: str


class DesktopAsync:
    """The desktop of a sandbox; it starts with its first use, and what died of it is started again."""

    def __init__(self, call: Callable[[Tool], Awaitable[ToolResult]], target: Callable[[], PortTarget]) -> None:
        self._call = call
        self._target = target

    async def url(self, *, readonly: bool = False, ttl: float = 3600.0) -> str:
        """Return the URL of a page that shows the desktop, valid for `ttl` seconds (1 to 30 days).

        Anyone with the URL sees the desktop in any browser and, unless it is `readonly`, can take over from the agent.
        `box.list_exposed()` lists those there are and revokes them.

        Raises:
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no desktop.
        """
        kind = pb.EXPOSURE_KIND_DESKTOP_READONLY if readonly else pb.EXPOSURE_KIND_DESKTOP
        return (await expose(self._target(), ttl, pb.ExposePortRequest(kind=kind))).url

    async def screenshot(
        self,
        region: Sequence[int] | None = None,
        scale: float = 1.0,
        format: Literal["png", "jpeg", "webp"] = "png",  # noqa: A002 - the word of the field
    ) -> bytes:
        """Return an image of the screen, or of a region: left, top, right and bottom in pixels.

        Raises:
            WrongState: The region is outside of the screen, or the desktop could not be started.
        """
        corners = None if region is None else list(region)
        (image,) = (await self._run(build(TakeScreenshot, corners, scale, format))).images
        return image

    async def info(self) -> ScreenInfo:
        """Return the screen's size, the position of the mouse, and which programs of the desktop run."""
        found = await self._values(build(GetScreen))
        x, y = found["cursor"]
        return ScreenInfo(found["width"], found["height"], (x, y), found["parts"])

    async def windows(self) -> list[Window]:
        """Return the windows."""
        found = (await self._values(build(ListWindows)))["windows"]
        return [Window(each["window_id"], each["pid"], tuple(each["region"]), each["title"]) for each in found]

    async def focus(self, window: Window | str) -> None:
        """Raise a window and give it the keyboard.

        Raises:
            WrongState: It is gone; the message lists those there are.
        """
        await self._run(build(FocusWindow, window.window_id if isinstance(window, Window) else window))

    async def launch(self, *command: str) -> int:
        """Start a program on the desktop and return its pid in the sandbox.

        Raises:
            WrongState: There is no such program.
        """
        return int((await self._values(build(LaunchProgram, list(command))))["pid"])

    async def get_clipboard(self) -> str:
        """Return the clipboard's text, empty if it has none."""
        return str((await self._values(build(GetClipboard)))["text"])

    async def set_clipboard(self, text: str) -> None:
        """Replace the clipboard's text."""
        await self._run(build(SetClipboard, text))

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the screen, from 200 to 4096 pixels a side; programs go on."""
        await self._run(build(ResizeScreen, width, height))

    async def set_layout(self, layout: str, variant: str = "") -> None:
        """Change the keyboard's layout, as X names it: "de", or "us" with the variant "dvorak"; texts arrive in any.

        Raises:
            WrongState: There is none of the name.
        """
        await self._run(build(SetKeyboardLayout, layout, variant))

    async def type(self, text: str) -> None:
        """Type a text, in any script."""
        await self._run(build(ComputerUse, "type", text=text))

    def record(
        self,
        folder: str = "",
        *,
        video: Video = "mp4",
        fps: int = 10,
        max_seconds: float = 3600.0,
        max_bytes: int = 256 << 20,
    ) -> RecordingAsync:
        """Return a recording to start, or to enter as a block: a video of the screen, and a trace of the calls.

        It goes to a new folder of the workspace, which `sandmesh replay` shows as a page. The video ends by itself
        after `max_seconds`; of `max_bytes` a quarter is for the trace.

        Raises:
            InvalidArgument: A value is out of its range.
        """
        return RecordingAsync(self._call, build(StartRecording, folder, video, fps, max_seconds, max_bytes))

    async def act(self, action: Mapping[str, Any]) -> ToolResult:
        """Carry out an action as a model wrote it, in the form of Anthropic's or OpenAI's computer tools.

        Anthropic: {"action": "left_click", "coordinate": [x, y]}; OpenAI: {"type": "click", "x": x, "y": y}. The result
        of an action that failed has `is_error` and a text for the model.

        Raises:
            InvalidArgument: It is neither, or lacks a value.
        """
        result = ToolResult()
        for one in translate(action):
            result = await self._call(one)
            if result.is_error:
                break
        return result

    async def computer(self, vendor: Vendor) -> ComputerAsync:
        """Return the desktop as a vendor's computer tool: what is declared to a model, and what carries out its calls.

        Raises:
            InvalidArgument: The vendor is neither "anthropic" nor "openai".
        """
        return computer_of(vendor)(self.act, self._call, await self.info())

    async def _values(self, declaration: Tool) -> dict[str, Any]:
        return (await self._run(declaration)).structured or {}

    async def _run(self, declaration: Tool) -> ToolResult:
        result = await self._call(declaration)
        if result.is_error:
            raise WrongState(result.text.strip(), {"state": "DESKTOP", "tool": declaration.name})
        return result


class Desktop(Facade):
    """The desktop of a sandbox; it starts with its first use, and what died of it is started again."""

    def __init__(self, twin: DesktopAsync) -> None:
        self.twin: DesktopAsync = twin

    url = blocking(DesktopAsync.url)
    screenshot = blocking(DesktopAsync.screenshot)
    info = blocking(DesktopAsync.info)
    windows = blocking(DesktopAsync.windows)
    focus = blocking(DesktopAsync.focus)
    launch = blocking(DesktopAsync.launch)
    get_clipboard = blocking(DesktopAsync.get_clipboard)
    set_clipboard = blocking(DesktopAsync.set_clipboard)
    resize = blocking(DesktopAsync.resize)
    set_layout = blocking(DesktopAsync.set_layout)
    type = blocking(DesktopAsync.type)
    act = blocking(DesktopAsync.act)
    computer = blocking_twin(Computer, DesktopAsync.computer)

    def record(
        self,
        folder: str = "",
        *,
        video: Video = "mp4",
        fps: int = 10,
        max_seconds: float = 3600.0,
        max_bytes: int = 256 << 20,
    ) -> Recording:
        """Return a recording to start, or to enter as a block: a video of the screen, and a trace of the calls.

        It goes to a new folder of the workspace, which `sandmesh replay` shows as a page. The video ends by itself
        after `max_seconds`; of `max_bytes` a quarter is for the trace.

        Raises:
            InvalidArgument: A value is out of its range.
        """
        return Recording(self.twin.record(folder, video=video, fps=fps, max_seconds=max_seconds, max_bytes=max_bytes))
