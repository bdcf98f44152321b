"""Requests of the agent, one at a time, each answered by one message.

A message is a frame with a JSON object: to here `id`, `tool` and `arguments`, or `cancel` with an id; from here `up`,
or `id` with `error`, a text, or with `blocks` and `structured`. A cancelled request is answered, too, once it
does nothing more.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Error

from sandmesh.shared import frames
from sandmeshd.agent.userland.browser import actions, captures, navigation, storage
from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.screen.screencast import screencast
from sandmeshd.agent.userland.browser.screen.view import BrowserView
from sandmeshd.agent.userland.browser.session import BrowserSession

ToolRunner = Callable[[BrowserSession, dict[str, Any], BrowserAnswer], Awaitable[None]]

_ADDRESS: Final = "debugging_address"
_VIEW: Final = "open_view"
TOOLS: Final[dict[str, ToolRunner]] = {
    "browser_click": actions.click,
    "browser_close": navigation.close,
    "browser_console_messages": captures.console_messages,
    "browser_drag": actions.drag,
    "browser_evaluate": captures.evaluate,
    "browser_file_upload": actions.file_upload,
    "browser_fill_form": actions.fill_form,
    "browser_handle_dialog": actions.handle_dialog,
    "browser_hover": actions.hover,
    "browser_mouse_click_xy": actions.click_at,
    "browser_mouse_drag_xy": actions.drag_to,
    "browser_mouse_move_xy": actions.move_to,
    "browser_mouse_wheel": actions.turn_wheel,
    "browser_navigate": navigation.navigate,
    "browser_navigate_back": navigation.back,
    "browser_navigate_forward": navigation.forward,
    "browser_network_requests": captures.network_requests,
    "browser_pdf_save": captures.pdf_save,
    "browser_press_key": actions.press_key,
    "browser_resize": navigation.resize,
    "browser_select_option": actions.select_option,
    "browser_set_storage_state": storage.load_state,
    "browser_snapshot": captures.snapshot,
    "browser_storage_state": storage.save_state,
    "browser_tab_close": navigation.tab_close,
    "browser_tab_list": navigation.tab_list,
    "browser_tab_new": navigation.tab_new,
    "browser_tab_select": navigation.tab_select,
    "browser_take_screenshot": captures.take_screenshot,
    "browser_type": actions.type_text,
    "browser_wait_for": navigation.wait_for,
    "screencast": screencast,
    "settle_profile": storage.settle_profile,
    "trace_picture": captures.trace_picture,
    "warm_up": captures.warm_up,
    _ADDRESS: storage.debugging_address,
}
_CRASHED: Final = (
    "The browser ended unexpectedly during this call: it crashed or was killed. The next call restarts it, without "
    "its tabs, and with its cookies and storage."
)
_PAGE_CRASHED: Final = (
    "The page crashed during this call, perhaps because it took too much memory. Call browser_navigate to load a page "
    "again."
)


async def serve(channel: socket.socket) -> None:
    """Serve until the agent closes its socket."""
    reader, writer = await asyncio.open_unix_connection(sock=channel)
    server = _BrowserServer(writer, Path.cwd())
    server.send({"up": True})
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            server.take(json.loads(await reader.readexactly(size)))
    except (asyncio.IncompleteReadError, ConnectionError):
        await server.stop()


class _BrowserServer:
    def __init__(self, writer: asyncio.StreamWriter, workspace: Path) -> None:
        self._writer = writer
        self._session = BrowserSession(workspace)
        self._tools = {**TOOLS, _VIEW: BrowserView(self._session).open}
        self._turn = asyncio.Lock()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the agent."""
        data = json.dumps(message).encode()
        self._writer.write(frames.prefix(len(data)) + data)

    def take(self, message: dict[str, Any]) -> None:
        """Start or cancel a request."""
        if "cancel" in message:
            task = self._tasks.get(message["cancel"])
            if task is not None:
                task.cancel()
            return
        task = asyncio.create_task(self._answer(message["id"], message["tool"], message["arguments"]))
        self._tasks[message["id"]] = task
        task.add_done_callback(partial(self._forget, message["id"]))

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        if task.cancelled():
            self.send({"id": number, "error": "The request was cancelled."})

    async def stop(self) -> None:
        """End the browser."""
        for task in self._tasks.values():
            task.cancel()
        await self._session.stop()

    async def _answer(self, number: int, tool: str, arguments: dict[str, Any]) -> None:
        answer = BrowserAnswer()
        # Where the browser runs who connects to it does not wait: the tool under way may take long.
        waits = tool not in (_ADDRESS, _VIEW) or not self._session.running
        try:
            async with self._turn if waits else nullcontext():
                await self._run(self._tools[tool], arguments, answer)
        except BrowserFailure as failure:
            self.send({"id": number, "error": "\n".join([*self._session.notes(), str(failure)])})
        except Error as error:
            self.send({"id": number, "error": await self._explain(error)})
        else:
            self.send({"id": number, "blocks": answer.blocks, "structured": answer.structured})

    async def _run(self, run: ToolRunner, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
        try:
            await run(self._session, arguments, answer)
            if answer.with_page:
                await self._session.describe(answer)
        except (BrowserFailure, Error) as error:
            if await self._session.forget_if_driver_ended():
                raise BrowserFailure(_CRASHED) from error
            raise

    async def _explain(self, error: Error) -> str:
        # That the browser has gone may be reported a moment after the call that failed because of it.
        await asyncio.sleep(0)
        if not self._session.running or self._session.notes():
            return _CRASHED
        if any(tab.crashed for tab in self._session.tabs):
            return _PAGE_CRASHED
        return f"The browser refused: {error.message}"
