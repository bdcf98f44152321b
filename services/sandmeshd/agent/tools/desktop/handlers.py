"""The handlers of the desktop's tools."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import socket
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from sandmesh._tools import Tool
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
    TakeScreenshot,
)
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler, Service
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.tools.desktop.actions import Actions
from sandmeshd.agent.tools.desktop.parts import RFB_SOCKET, DesktopParts
from sandmeshd.agent.tools.desktop.rfb import RfbMessages
from sandmeshd.agent.tools.desktop.screen import Screen
from sandmeshd.agent.tools.recorder.handlers import Recorder
from sandmeshd.agent.tools.viewers import Viewers, connect_socket
from sandmeshd.agent.userland.python import content_blocks

HELD: Final = (
    "A person has taken over the desktop: its mouse, keyboard and windows wait for them. Screenshots still work. Call "
    "the action wait, then try again."
)


class DesktopViewers:
    """The viewers of one desktop."""

    def __init__(self, parts: DesktopParts) -> None:
        self._parts = parts
        self._viewers = Viewers("desktop", HELD)
        self.act = self._viewers.act

    def services(self) -> Mapping[str, Service]:
        """Return what serves the gateway."""
        return self._viewers.services("desktop.control")

    async def dial(self, viewer: str, *, readonly: bool) -> socket.socket:
        """Connect a viewer to the desktop, started where it does not run. Its input passes while it is in control.

        Raises:
            ToolFailure: The desktop does not start.
        """
        await self._parts.ready()
        server = await connect_socket(RFB_SOCKET)
        messages = RfbMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)


_COPY = 'printf %s "$1" | xclip -selection clipboard -in >/dev/null 2>&1'
_PASTE = "xclip -selection clipboard -out -target UTF8_STRING 2>/dev/null || true"
_HARMLESS = frozenset({"screenshot", "get_screenshot", "zoom", "cursor_position", "get_cursor_position", "wait"})
"""The actions that change nothing, which work while a person has the desktop."""
_FOCUS_PAUSES: Final = (0.1, 0.2, 0.4)
"""In seconds, between looks for a window that is to be focused and is not there."""

_TERMINALS = frozenset({"xterm", "uxterm", "lxterm", "x-terminal-emulator"})
"""Those that end where a kernel does not let them take a terminal as their own."""
_NO_TERMINAL = (
    "{} does not run here: gVisor's kernel lets no program take a terminal of its choice as its own. Run commands by "
    "run_shell_command or box.processes; other programs of the desktop work."
)
_LAUNCH = 'setsid "$@" </dev/null >/dev/null 2>&1 & echo $!'


def make_desktop(programs: Programs, recorder: Recorder) -> ScreenTools:
    """Return a sandbox's desktop, which starts with the first call that needs it."""
    return ScreenTools(Screen(programs), recorder)


class ScreenTools:
    """The tools on one screen."""

    def __init__(self, screen: Screen, recorder: Recorder) -> None:
        self._screen = screen
        self._recorder = recorder
        recorder.parts = screen.parts
        self._actions = Actions(screen)
        self.view = DesktopViewers(screen.parts)

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {
            ComputerUse: self._traced(self.act),
            TakeScreenshot: self.take_screenshot,
            GetScreen: self.get_screen,
            ListWindows: self.list_windows,
            FocusWindow: self._traced(self._alone(self.focus_window)),
            LaunchProgram: self._traced(self._alone(self.launch)),
            GetClipboard: self.get_clipboard,
            SetClipboard: self._traced(self._alone(self.set_clipboard)),
            ResizeScreen: self._traced(self._alone(self.resize)),
            SetKeyboardLayout: self._traced(self._alone(self.set_layout)),
        }

    def _alone(self, handler: Handler) -> Handler:
        """Return a handler whose calls end when a person takes over."""

        async def run(request: Tool, call: RunningCall) -> Outcome:
            call.started()
            return await self.view.act(_outcome(handler, request, call))

        return run

    def _traced(self, handler: Handler) -> Handler:
        """Return a handler whose calls are in the trace of a recording."""

        async def run(request: Tool, call: RunningCall) -> Outcome:
            async with self._recorder.trace.step(request.name, vars(request), self._screen.picture) as step:
                outcome = await handler(request, call)
                step.result = outcome.structured.decode()
                return outcome

        return run

    async def act(self, request: ComputerUse, call: RunningCall) -> Outcome:
        """Carry out an action of a model."""
        call.started()
        work = self._actions.run(request, call)
        done = await (work if request.action in _HARMLESS else self.view.act(work))
        return await _image(call, done, "png") if isinstance(done, bytes) else await _plain(call, done)

    async def take_screenshot(self, request: TakeScreenshot, call: RunningCall) -> Outcome:
        """Take an image."""
        call.started()
        image = await self._screen.image(call, request.region, request.scale, request.format)
        return await _image(call, image, request.format)

    async def get_screen(self, request: GetScreen, call: RunningCall) -> Outcome:
        """Return the screen's size, the mouse and the parts."""
        del request
        call.started()
        size, cursor = await self._screen.size(call), await self._screen.cursor(call)
        parts = self._screen.parts.describe()
        return await _plain(call, {"width": size.width, "height": size.height, "cursor": cursor, "parts": parts})

    async def list_windows(self, request: ListWindows, call: RunningCall) -> Outcome:
        """List the windows."""
        del request
        call.started()
        return await _plain(call, {"windows": await self._screen.windows(call)})

    async def focus_window(self, request: FocusWindow, call: RunningCall) -> Outcome:
        """Focus a window that exists."""
        number, known = int(request.window_id, 16), await self._known(call)
        for pause in _FOCUS_PAUSES:
            if number in known:
                break
            # A new window can have the id of one that has just closed: the window manager notes that end first.
            await asyncio.sleep(pause)
            known = await self._known(call)
        if number not in known:
            listed = ", ".join(f"{each['window_id']} ({each['title']})" for each in known.values()) or "none"
            raise ToolFailure(f"There is no window {request.window_id}; the windows are: {listed}.")
        await self._screen.mouse(call, "windowactivate", "--sync", str(int(request.window_id, 16)))
        return await _plain(call, {"ok": True})

    async def _known(self, call: RunningCall) -> dict[int, dict[str, Any]]:
        return {int(each["window_id"], 16): each for each in await self._screen.windows(call)}

    async def launch(self, request: LaunchProgram, call: RunningCall) -> Outcome:
        """Start a program in the background."""
        name = request.command[0]
        if PurePath(name).name in _TERMINALS and not _has_terminals():
            raise ToolFailure(_NO_TERMINAL.format(name))
        find = 'command -v -- "$1" >/dev/null || { echo "there is no program $1" >&2; exit 1; }; '
        pid = await self._screen.run(call, "/bin/sh", "-c", find + _LAUNCH, "launch", *request.command)
        return await _plain(call, {"pid": int(pid)})

    async def get_clipboard(self, request: GetClipboard, call: RunningCall) -> Outcome:
        """Return the clipboard's text."""
        del request
        call.started()
        text = await self._screen.run(call, "/bin/sh", "-c", _PASTE)
        return await _plain(call, {"text": text.decode("utf-8", "replace")})

    async def set_clipboard(self, request: SetClipboard, call: RunningCall) -> Outcome:
        """Replace the clipboard's text."""
        if "\0" in request.text:
            raise ToolFailure("The clipboard takes no zero bytes.")
        await self._screen.run(call, "/bin/sh", "-c", _COPY, "copy", request.text)
        return await _plain(call, {"ok": True})

    async def resize(self, request: ResizeScreen, call: RunningCall) -> Outcome:
        """Change the screen's size."""
        if self._recorder.filming:
            raise ToolFailure("The screen is being recorded, at its present size: stop the recording, then resize it.")
        await self._screen.resize(call, request.width, request.height)
        size = await self._screen.size(call)
        return await _plain(call, {"width": size.width, "height": size.height})

    async def set_layout(self, request: SetKeyboardLayout, call: RunningCall) -> Outcome:
        """Change the keyboard's layout."""
        await self._screen.set_layout(call, request.layout, request.variant)
        return await _plain(call, {"ok": True})


async def _outcome(handler: Handler, request: Tool, call: RunningCall) -> Outcome:
    return await handler(request, call)


def _has_terminals() -> bool:
    """Return whether programs can have terminals: Linux says of this process that it has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno != errno.EIO
    return True


async def _plain(call: RunningCall, values: Mapping[str, Any]) -> Outcome:
    encoded = json.dumps(values)
    await call.text(encoded, "stdout")
    return Outcome(reason=pb.END_REASON_EXITED, structured=encoded.encode())


async def _image(call: RunningCall, data: bytes, form: str) -> Outcome:
    encoded = base64.b64encode(data).decode()
    block = {
        "type": "image",
        "data": encoded,
        "mimeType": f"image/{form}",
        "annotations": None,
        "description": "stdout",
    }
    await call.content(content_blocks.encode(block))
    return Outcome(reason=pb.END_REASON_EXITED)
