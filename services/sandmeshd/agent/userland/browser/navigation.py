"""The tools that go to pages, wait for them, and open and close tabs."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from playwright.async_api import Error
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.chromium import proxy_url
from sandmeshd.agent.userland.browser.session import ACTION_SECONDS, NAVIGATION_SECONDS, BrowserSession, address
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

_SECONDS: Final = 5.0
_LARGEST: Final = 4096


async def explain_refusal(url: str) -> str:
    """Return what the proxy says to a connection to the host of a URL; "" where it connects, or there is none."""
    proxy, parts = urlsplit(proxy_url()), urlsplit(url)
    if not proxy.hostname or not parts.hostname:
        return ""
    with suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_SECONDS):
            return await _ask(proxy.hostname, proxy.port or 80, f"{parts.hostname}:{parts.port or 443}")
    return ""


async def _ask(host: str, port: int, target: str) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode("ascii", "ignore"))
        status = await reader.readline()
        if status.split()[1:2] == [b"200"]:
            return ""
        text = await reader.read(_LARGEST)
        return text.partition(b"\r\n\r\n")[2].decode("utf-8", "replace").strip()
    finally:
        writer.close()


_BARE_HOST: Final = re.compile(r"^(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|\[[0-9a-fA-F:]+\])(:\d+)?([/?#].*)?$")
_LOCAL: Final = re.compile(r"^(localhost|127\.|\[::1\])")
_LOAD_SECONDS: Final = 5.0
_REFUSED: Final = ("ERR_TUNNEL_CONNECTION_FAILED", "ERR_PROXY", "ERR_NAME_NOT_RESOLVED", "ERR_ADDRESS_UNREACHABLE")
_ERROR_PAGE: Final = "chrome-error:"
_ERROR_PAGE_SECONDS: Final = 3.0
_INTERRUPTIONS: Final = 3
_BLANK: Final = "about:blank"


def read_url(url: str, workspace: Path) -> str:
    """Return a URL that may be opened, with the scheme that a bare host lacks.

    Raises:
        BrowserFailure: It is not a URL, or one of a scheme or file that pages may not have.
    """
    url = url.strip()
    if url == _BLANK:
        return url
    if _BARE_HOST.match(url):
        return f"{'http' if _LOCAL.match(url) else 'https'}://{url}"
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise BrowserFailure(f"{url!r} is not a URL ({error}): pass one like https://example.com/page.") from None
    if parts.scheme == "file":
        path = Path(unquote(parts.path)).resolve()
        if not path.is_relative_to(workspace.resolve()):
            raise BrowserFailure(f"{url!r} is outside of the workspace: of files only those below {workspace} open.")
        return url
    if not parts.scheme or (parts.scheme in ("http", "https") and not host):
        raise BrowserFailure(f"{url!r} is not a URL: pass one like https://example.com/page.")
    if parts.scheme not in ("http", "https"):
        raise BrowserFailure(f"The scheme {parts.scheme!r} does not open: use http, https, or file below {workspace}.")
    return url


async def navigate(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Open a URL in the current tab."""
    url = read_url(arguments["url"], session.workspace)
    tab = await session.tab()
    if tab.crashed:
        crashed, tab = tab, await session.new_tab()
        await session.close_tab(crashed)
    elif tab.dialog is not None:
        tab = await session.free_tab()
    await _open(session, tab, url)
    answer.with_page = True


async def _open(session: BrowserSession, tab: Tab, url: str) -> None:
    session.downloads.started.clear()
    try:
        await _goto(tab, url)
    except PlaywrightTimeout:
        raise BrowserFailure(
            f"{url} did not answer within {NAVIGATION_SECONDS:g} s. Try again, or look at browser_network_requests."
        ) from None
    except Error as error:
        if "Download is starting" not in error.message and "ERR_ABORTED" not in error.message:
            await _await_error_page(tab, error)
            raise BrowserFailure(await _explain(url, error.message)) from None
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOAD_SECONDS):
                await session.downloads.started.wait()
        return
    if tab.dialog is None:
        with suppress(PlaywrightTimeout):
            await tab.page.wait_for_load_state("load", timeout=_LOAD_SECONDS * 1000)


async def _goto(tab: Tab, url: str) -> None:
    for again in range(_INTERRUPTIONS, -1, -1):
        try:
            going = tab.page.goto(url, wait_until="domcontentloaded", timeout=NAVIGATION_SECONDS * 1000)
            await tab.run(going, loads=True)
        except asyncio.CancelledError:
            await tab.stop_loading()
            raise
        except Error as error:
            # By the page that tells of an earlier failure, or by this very navigation, which that one has delayed.
            mine = any(
                f'interrupted by another navigation to "{other}' in error.message for other in (_ERROR_PAGE, url)
            )
            if not (again and mine):
                raise
        else:
            return


async def _await_error_page(tab: Tab, error: Error) -> None:
    """Wait for the page by which the browser tells of a failure: it would interrupt what is opened next."""
    if "net::ERR_" in error.message:
        with suppress(Error):
            await tab.page.wait_for_url(
                lambda shown: shown.startswith(_ERROR_PAGE), wait_until="commit", timeout=_ERROR_PAGE_SECONDS * 1000
            )


async def _explain(url: str, message: str) -> str:
    first = message.splitlines()[0].removeprefix("Page.goto: ")
    if any(code in message for code in _REFUSED):
        host = urlsplit(url).hostname
        if refusal := await explain_refusal(url):
            return f"The browser cannot reach {host}: {refusal}"
        return (
            f"The browser cannot reach {host} ({first}): the host does not exist, or the sandbox's network grant does "
            "not have it. The sandbox's events name what was refused and why; `network=` of a new sandbox grants hosts."
        )
    return f"The page could not be opened: {first}"


async def back(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """Go back in the tab's history."""
    await _go(session, answer, "back")


async def forward(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """Go forward in the tab's history."""
    await _go(session, answer, "forward")


async def _go(session: BrowserSession, answer: BrowserAnswer, where: str) -> None:
    tab = await session.free_tab()
    go = tab.page.go_back if where == "back" else tab.page.go_forward
    before = tab.page.url
    try:
        response = await tab.run(go(wait_until="domcontentloaded", timeout=NAVIGATION_SECONDS * 1000))
    except asyncio.CancelledError:
        await tab.stop_loading()
        raise
    except PlaywrightTimeout:
        raise BrowserFailure(f"The page did not answer within {NAVIGATION_SECONDS:g} s.") from None
    if response is None and tab.dialog is None and tab.page.url == before:
        answer.add(f"- There is no page to go {where} to.")
    answer.with_page = True


async def wait_for(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Wait for a time, a text, the end of a text, or without any of these until the page has loaded."""
    tab = await session.free_tab()
    seconds, text, text_gone = arguments.get("time"), arguments.get("text"), arguments.get("text_gone")
    if seconds:
        await tab.run(asyncio.sleep(seconds))
    limit = arguments["timeout"] * 1000
    try:
        if text_gone and tab.dialog is None:
            await tab.run(tab.page.get_by_text(text_gone).first.wait_for(state="hidden", timeout=limit))
        if text and tab.dialog is None:
            await tab.run(tab.page.get_by_text(text).first.wait_for(state="visible", timeout=limit))
        if not (seconds or text or text_gone):
            await tab.run(tab.page.wait_for_load_state("load", timeout=limit))
    except PlaywrightTimeout:
        wanted = f"{text!r} to appear" if text else f"{text_gone!r} to go" if text_gone else "the page to load"
        raise BrowserFailure(
            f"Waited {arguments['timeout']:g} s in vain for {wanted}. Call browser_snapshot to see the page."
        ) from None
    answer.with_page = True


async def resize(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Change the size of the page's view."""
    tab = await session.free_tab()
    await tab.page.set_viewport_size({"width": arguments["width"], "height": arguments["height"]})
    answer.with_page = True


async def close(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """Close the browser."""
    await session.close()
    answer.add("The browser is closed. The next call restarts it, with its cookies and storage.")


async def tab_list(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """List the tabs."""
    await session.tab()
    answer.add("\n".join(["- Open tabs:", *session.list_tabs()]))
    tabs = [{"index": number, "url": address(session, tab.page.url)} for number, tab in enumerate(session.tabs, 1)]
    answer.structured = {"tabs": tabs}


async def tab_new(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Open a tab, with a page or blank."""
    url = read_url(arguments.get("url") or _BLANK, session.workspace)
    tab = await session.new_tab()
    if url != _BLANK:
        await _open(session, tab, url)
    answer.with_page = True


async def tab_select(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Make a tab the current one."""
    await session.context()
    tab = session.at(arguments["index"])
    session.select(tab)
    if tab.dialog is None:
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                await tab.page.bring_to_front()
        except TimeoutError:
            raise BrowserFailure(HANGS) from None
    answer.with_page = True


async def tab_close(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Close a tab, the current one by default."""
    index = arguments.get("index")
    await session.context()
    tab = await session.tab() if index is None else session.at(index)
    await session.close_tab(tab)
    answer.with_page = True
