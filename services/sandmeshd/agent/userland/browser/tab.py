"""One tab: its page, and what was seen of it since its last navigation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, Final, cast

from playwright.async_api import ConsoleMessage, Dialog, Error, FileChooser, Frame, Page, Request
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import BrowserFailure
from sandmeshd.agent.userland.browser.downloads import Downloads
from sandmeshd.agent.userland.browser.screen.follower import DevTools
from sandmeshd.agent.userland.browser.snapshots import Shown, mask

_MOST_KEPT: Final = 1000
_SETTLE_SECONDS: Final = 3.0
_QUIET_SECONDS: Final = 0.05
_RESPONSE_SECONDS: Final = 2.0
SNAPSHOT_SECONDS: Final = 5.0
_PASSWORDS: Final = """elements => {
  const key = Symbol.for("sandmesh.passwords");
  if (!window[key]) Object.defineProperty(window, key, { value: new WeakSet() });
  for (const each of elements) if (each.type === "password") window[key].add(each);
  return elements.filter(each => window[key].has(each)).map(each => each.value.slice(0, 1000));
}"""
"""What fields have that are, or were when this last ran, for passwords."""
_NUMBERS: Final = count(1)
_AWAITED: Final = frozenset({"document", "stylesheet", "script", "xhr", "fetch"})
HANGS: Final = (
    "The page does not answer: a script of it may run without end. "
    "Call browser_tab_close to close it, or browser_close to restart the browser."
)


class Tab:
    """A page with its console, its requests, and the dialog or file chooser that waits for an answer."""

    def __init__(self, page: Page, downloads: Downloads) -> None:
        self.page = page
        self.console: deque[str] = deque(maxlen=_MOST_KEPT)
        self.requests: deque[Request] = deque(maxlen=_MOST_KEPT)
        self.dialog: Dialog | None = None
        self.dialog_number = 0
        """What tells the newest dialog from all others, of other tabs too."""
        self.chooser: FileChooser | None = None
        self.crashed = False
        self.shown = Shown()
        self._blocked = asyncio.Event()
        self._under_way: set[Request] = set()
        self._arrived = asyncio.Event()
        self._left: set[asyncio.Task[Any]] = set()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.console.append(f"[ERROR] {error}"))
        page.on("request", self._on_request)
        page.on("requestfinished", self._on_end)
        page.on("requestfailed", self._on_end)
        page.on("framenavigated", self._on_navigation)
        page.on("dialog", self._on_dialog)
        page.on("filechooser", self._on_chooser)
        page.on("crash", self._on_crash)
        page.on("download", downloads.start)

    def _on_console(self, message: ConsoleMessage) -> None:
        place = message.location
        where = f" @ {place['url']}:{place['lineNumber']}" if place.get("url") else ""
        self.console.append(f"[{message.type.upper()}] {message.text}{where}")

    def _on_request(self, request: Request) -> None:
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self.requests.clear()
            self.console.clear()
        self.requests.append(request)
        if request.resource_type in _AWAITED:
            self._under_way.add(request)

    def _on_end(self, request: Request) -> None:
        self._under_way.discard(request)
        self._arrived.set()

    def _on_navigation(self, frame: Frame) -> None:
        if frame == self.page.main_frame:
            self.shown.tree = ""
            self._under_way.clear()
            self._arrived.set()

    def _on_dialog(self, dialog: Dialog) -> None:
        self.dialog = dialog
        self.dialog_number = next(_NUMBERS)
        self._blocked.set()

    def _on_chooser(self, chooser: FileChooser) -> None:
        self.chooser = chooser

    def _on_crash(self, _: Page) -> None:
        self.crashed = True

    async def run(self, action: Coroutine[Any, Any, Any], *, loads: bool = False) -> Any:
        """Run an action until it is done or a dialog opens, which holds up the page until it is handled.

        One that `loads` a page is followed by nothing more where that page has no scripts.

        Returns: the action's result, None if a dialog opened.
        """
        result, blocked = await self._until_blocked(action)
        if not blocked and (not loads or await self._has_scripts()):
            await self._settle()
        return result

    async def prepare(self, check: Coroutine[Any, Any, Any]) -> None:
        """Wait for what changes nothing, until it is done or a dialog opens."""
        await self._until_blocked(check)

    async def step(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Run a short action as `run` does; one that has begun runs to its end even where this is cancelled.

        Playwright's own process does not hear of a cancelled action and would carry it out later.
        """
        work = asyncio.ensure_future(self._until_blocked(action))
        try:
            result, blocked = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
        if not blocked:
            await self._settle()
        return result

    async def _until_blocked(self, action: Coroutine[Any, Any, Any]) -> tuple[Any, bool]:
        """Run an action; return its result, or that a dialog holds it up."""
        self._blocked.clear()
        work = asyncio.ensure_future(action)
        blocked = asyncio.create_task(self._blocked.wait())
        try:
            await asyncio.wait({work, blocked}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            blocked.cancel()
        if work.done():
            return work.result(), False
        self._leave(work)
        return None, True

    async def stop_loading(self) -> None:
        """Stop the navigation under way."""
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_RESPONSE_SECONDS):
                cdp = cast("DevTools", await self.page.context.new_cdp_session(self.page))
                await cdp.send("Page.stopLoading")
                await cdp.detach()

    def _leave(self, work: asyncio.Future[Any]) -> None:
        """Detach an action that a dialog holds up: it continues, and is not awaited."""
        task = asyncio.ensure_future(_ignored(work))
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def _has_scripts(self) -> bool:
        try:
            async with asyncio.timeout(_QUIET_SECONDS):
                return bool(await self.page.evaluate("() => document.scripts.length"))
        except (Error, TimeoutError):
            return True

    async def _settle(self) -> None:
        """Wait until what the action made the page request has arrived, but not for long."""
        await asyncio.sleep(_QUIET_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while self._under_way and self.dialog is None:
                    self._arrived.clear()
                    await self._arrived.wait()

    async def snapshot(self) -> str:
        """Return the page as its accessibility tree with references, in YAML.

        Raises:
            BrowserFailure: The page does not answer.
        """
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS + 1):
                tree = await self.page.aria_snapshot(mode="ai", timeout=SNAPSHOT_SECONDS * 1000)
                await self.note_passwords()
        except (PlaywrightTimeout, TimeoutError):
            raise BrowserFailure(HANGS) from None
        return mask(tree, self.shown.passwords)

    async def note_passwords(self) -> None:
        """Note what fields have that are, or were, for passwords: it stays hidden when a page changes their type."""
        for frame in self.page.frames:
            with suppress(Error):
                values: list[str] = await frame.locator("input").evaluate_all(_PASSWORDS)
                for value in values:
                    self.shown.note_password(value)

    async def is_responsive(self) -> bool:
        """Return whether the page runs scripts now: one whose own script never ends does not."""
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                await self.page.evaluate("() => 1")
        except (Error, TimeoutError):
            return False
        return True

    async def title(self) -> str:
        """Return the page's title; empty where the page does not answer."""
        try:
            async with asyncio.timeout(SNAPSHOT_SECONDS):
                return await self.page.title()
        except (Error, TimeoutError):
            return ""


async def _ignored(work: asyncio.Future[Any]) -> None:
    with suppress(Error):
        await work
