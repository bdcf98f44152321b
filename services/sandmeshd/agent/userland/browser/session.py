"""The running browser: its start, its end, and its tabs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from playwright.async_api import BrowserContext, Error, Locator, Page

from sandmeshd.agent.userland.browser import chromium
from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.downloads import Downloads
from sandmeshd.agent.userland.browser.launcher import Launcher
from sandmeshd.agent.userland.browser.screen.follower import TabFollower
from sandmeshd.agent.userland.browser.screen.screencast import Screencast
from sandmeshd.agent.userland.browser.snapshots import change, mask_url, part
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

ACTION_SECONDS: Final = 10.0
NAVIGATION_SECONDS: Final = 60.0
MOST_TABS: Final = 50
"""What each tab costs is the sandbox's, whose pages may open as many as they like."""
_CLOSE_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 3.0
_DIED: Final = (
    "- The browser had ended unexpectedly and was restarted: its tabs are gone, cookies and storage were kept."
)


class BrowserSession:
    """One browser at a time, started when it is needed, and its tabs in order."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.profile = chromium.profile_directory()
        self.downloads = Downloads(workspace)
        self._launcher = Launcher(self.profile)
        self._context: BrowserContext | None = None
        self._tabs: dict[Page, Tab] = {}
        self.current: Tab | None = None
        """The tab that tools use and people see."""
        self.follower = TabFollower(self)
        self.screencast = Screencast(self.follower)
        self._died = False
        self._closed = 0
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def running(self) -> bool:
        """Whether there is a browser."""
        return self._context is not None

    async def context(self) -> BrowserContext:
        """Return the browser's context, started where none runs.

        Raises:
            BrowserFailure: It does not start.
        """
        if self._context is None:
            self._context = await self._launcher.launch()
            if cookies := chromium.take_cookies(self.profile):
                with suppress(Error):
                    await self._context.add_cookies(cast("Any", cookies))
            self._context.on("close", self._on_close)
            self._context.on("page", self._on_page)
            for page in self._context.pages:
                self._on_page(page)
        return self._context

    async def forget_if_driver_ended(self) -> bool:
        """Forget the browser if the driver process has ended, which only failing calls show; return whether it has."""
        if self._context is None:
            return False
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._context.cookies("http://localhost")
        except TimeoutError:
            return False
        except Error:
            self._forget()
            await self._launcher.stop()
            return True
        return False

    def _on_page(self, page: Page) -> None:
        if len(self._tabs) >= MOST_TABS:
            self._closed += 1
            closing = asyncio.ensure_future(_closed(page))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            return
        tab = self._tabs[page] = Tab(page, self.downloads)
        page.on("close", self._on_page_close)
        if self.current is None:
            self.current = tab

    def _on_page_close(self, page: Page) -> None:
        tab = self._tabs.pop(page, None)
        if tab is not None and tab is self.current:
            self.current = next(reversed(self._tabs.values()), None)

    def _on_close(self, _: BrowserContext) -> None:
        # `close` has forgotten it before: this one ended by itself.
        if self._context is not None:
            self._forget()
            self._died = True

    def _forget(self) -> None:
        self._context = self.current = None
        self._tabs.clear()

    async def close(self, *, keep_cookies: bool = False) -> None:
        """Close the browser; cookies and storage stay in its profile, with `keep_cookies` those of the session, too."""
        context = self._context
        if context is not None and keep_cookies:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    chromium.keep_cookies(self.profile, [dict(cookie) for cookie in await context.cookies()])
        self._forget()
        if context is not None:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await context.close()
            chromium.prepare_profile(self.profile)

    async def stop(self) -> None:
        """Close the browser and what drives it."""
        await self.close()
        await self._launcher.stop()

    # Tabs.

    @property
    def tabs(self) -> list[Tab]:
        """The tabs in order."""
        return list(self._tabs.values())

    async def tab(self) -> Tab:
        """Return the current tab; a new one where there is none."""
        context = await self.context()
        if self.current is None:
            self.current = self._tabs[await context.new_page()]
        return self.current

    async def free_tab(self) -> Tab:
        """Return the current tab where no dialog holds it up.

        Raises:
            BrowserFailure: A dialog is open, or its page crashed.
        """
        tab = await self.tab()
        if tab.dialog is not None:
            raise BrowserFailure(f"{dialog_line(tab)} Nothing else works on the page before that.")
        if tab.crashed:
            raise BrowserFailure(
                "The page crashed, perhaps because it took too much memory. Call browser_navigate to load a page again."
            )
        return tab

    async def new_tab(self) -> Tab:
        """Open a tab and select it.

        Raises:
            BrowserFailure: There are as many as there may be.
        """
        context = await self.context()
        tab = self._tabs.get(await context.new_page())
        if tab is None:
            raise BrowserFailure(f"There are {MOST_TABS} tabs, which is the most: close some by browser_tab_close.")
        self.current = tab
        return tab

    def select(self, tab: Tab) -> None:
        """Make a tab the current one."""
        self.current = tab

    def at(self, index: int) -> Tab:
        """Return the tab of a number, which counts from 1.

        Raises:
            BrowserFailure: There is none.
        """
        if not 1 <= index <= len(self._tabs):
            listing = "\n".join(self.list_tabs()) or "- none is open"
            raise BrowserFailure(f"There is no tab {index}: it was closed, or never opened. The tabs are:\n{listing}")
        return self.tabs[index - 1]

    def list_tabs(self) -> list[str]:
        """Return a line for each tab."""
        return [
            f"- {number}: {'(current) ' if tab is self.current else ''}{address(self, tab.page.url)}"
            for number, tab in enumerate(self._tabs.values(), 1)
        ]

    async def close_tab(self, tab: Tab) -> None:
        """Close a tab; of a page that does not even close, the browser is closed."""
        if len(self._tabs) == 1:
            # With its last tab the browser would end.
            await self.new_tab()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await tab.page.close()
        except TimeoutError:
            await self.close()
            return
        if self.current is not None:
            await _show(self.current)

    async def describe(self, answer: BrowserAnswer) -> None:
        """Add the page's address, title and snapshot, and what happened beside."""
        lines = await self.downloads.report(_REPORT_SECONDS)
        tab = self.current
        if tab is None:
            answer.add("\n".join([*self.notes(), *lines, "- No page is open."]))
            return
        lines = [*self.notes(), *lines, *(["- Open tabs:", *self.list_tabs()] if len(self._tabs) > 1 else [])]
        if tab.dialog is not None:
            answer.add("\n".join([*lines, f"- Page URL: {address(self, tab.page.url)}", f"- {dialog_line(tab)}"]))
            return
        if tab.chooser is not None:
            lines.append("- A file chooser is open: call browser_file_upload with the files' paths.")
        lines += [f"- Page URL: {address(self, tab.page.url)}", f"- Page Title: {await tab.title()}"]
        answer.add("\n".join([*lines, await _snapshot(tab, self.tabs, answer)]))

    def notes(self) -> list[str]:
        """Return what happened to the browser since this was last asked."""
        died, self._died = self._died, False
        closed, self._closed = self._closed, 0
        more = f"- Pages opened {closed} more tabs than the {MOST_TABS} there may be; these were closed immediately."
        return [*([_DIED] if died else []), *([more] if closed else [])]


def address(session: BrowserSession, url: str) -> str:
    """Return a URL as the agent is told it: without what password fields have."""
    return mask_url(url, [each for tab in session.tabs for each in tab.shown.passwords])


async def _snapshot(tab: Tab, tabs: list[Tab], answer: BrowserAnswer) -> str:
    """Return a tab's tree, or what changed in it since the last answer if that was about it."""
    tree = await tab.snapshot()
    before, tab.shown.tree = tab.shown.tree, tree
    for other in tabs:
        if other is not tab:
            other.shown.tree = ""
    if before and not answer.snapshot_arguments and (changed := change(before, tree)) is not None:
        return changed
    return f"- Page Snapshot:\n{part(tree, **(answer.snapshot_arguments or {}))}"


async def _closed(page: Page) -> None:
    """Close a page that has no tab."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await page.close()


async def _show(tab: Tab) -> None:
    """Bring a tab to the front: pages behind draw nothing, which others that drive them would wait for."""
    if tab.dialog is None:
        with suppress(Error, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await tab.page.bring_to_front()


def dialog_line(tab: Tab) -> str:
    """Return what is known of the open dialog, and what to do."""
    dialog = tab.dialog
    if dialog is None:
        return "No dialog is open."
    offered = f", which offers the text {dialog.default_value!r}" if dialog.default_value else ""
    return f"A dialog is open: {dialog.type} with the message {dialog.message!r}{offered}. Call browser_handle_dialog."


async def find_element(tab: Tab, ref: str, element: str = "") -> Locator:
    """Return the element of a reference in the last snapshot.

    Raises:
        BrowserFailure: The page has no such element (any more); the message has its present snapshot.
    """
    locator = tab.page.locator(f"aria-ref={ref}")
    try:
        async with asyncio.timeout(ACTION_SECONDS):
            found = await locator.count()
    except TimeoutError:
        raise BrowserFailure(HANGS) from None
    except Error:
        found = 0
    if found:
        return locator
    what = f"{element!r} ({ref})" if element else ref
    now = await tab.snapshot()
    raise BrowserFailure(
        f"The page has no element {what}: the reference is of an older snapshot, or never was one. "
        f"Take one of the page as it is now:\n{part(now)}"
    )
