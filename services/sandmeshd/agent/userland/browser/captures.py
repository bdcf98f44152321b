"""The tools that look: snapshot, screenshot, PDF, console, network, and scripts of the caller's own."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Error, Locator, Page, Request
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import LARGEST_IMAGE, Answer, BrowserFailure
from sandmeshd.agent.userland.browser.downloads import free_path, size_of
from sandmeshd.agent.userland.browser.session import ACTION_SECONDS, BrowserSession, find_element
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

_QUALITIES: Final = (80, 50, 20)
_MAX_STRUCTURED: Final = 200_000
_PICTURE_SECONDS: Final = 5.0
_PAGE_SECONDS: Final = 30.0


async def snapshot(session: BrowserSession, _: dict[str, Any], answer: Answer) -> None:
    """Show the page as its accessibility tree."""
    await session.free_tab()
    answer.with_page = True


def writable(workspace: Path, name: str) -> Path:
    """Return the path of a new file in the workspace; its folder is made.

    Raises:
        BrowserFailure: It is outside.
    """
    path = (workspace / name).resolve()
    if not path.is_relative_to(workspace.resolve()):
        raise BrowserFailure(f"{name!r} is outside of the workspace: pass a name below {workspace}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def take_screenshot(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Take a picture of the page or of an element; with a file name it is kept in the workspace too."""
    tab = await session.free_tab()
    name = arguments.get("filename") or ""
    target: Page | Locator = tab.page
    if arguments.get("ref"):
        target = await find_element(tab, arguments["ref"], arguments.get("element") or "")
    kind: Literal["png", "jpeg"] = "png" if arguments.get("raw") or name.endswith(".png") else "jpeg"
    whole = bool(arguments.get("full_page"))
    path = writable(session.workspace, name) if name else None
    image = await _image(target, kind, _QUALITIES[0], whole=whole)
    if path is not None:
        path.write_bytes(image)
        answer.add(f"- Saved the screenshot as {path.relative_to(session.workspace.resolve())} ({size_of(path)})")
    for quality in _QUALITIES:
        if len(image) <= LARGEST_IMAGE:
            answer.add_image(image, f"image/{kind}")
            return
        kind = "jpeg"
        image = await _image(target, kind, quality, whole=whole)
    answer.add("- The screenshot is too large to show: pass a filename to save it, or a ref to show less of the page.")


async def _image(target: Page | Locator, kind: Literal["png", "jpeg"], quality: int, *, whole: bool) -> bytes:
    how = quality if kind == "jpeg" else None
    limit = ACTION_SECONDS * 1000
    try:
        async with asyncio.timeout(ACTION_SECONDS + 1):
            if isinstance(target, Page):
                return await target.screenshot(type=kind, quality=how, full_page=whole, timeout=limit)
            return await target.screenshot(type=kind, quality=how, timeout=limit)
    except (PlaywrightTimeout, TimeoutError):
        raise BrowserFailure(HANGS) from None


async def trace_picture(session: BrowserSession, arguments: dict[str, Any], _: Answer) -> None:
    """Write a small picture of the page for a trace; nothing where none is shown, or it does not answer."""
    tab = session.current
    if tab is None or tab.dialog is not None or tab.crashed:
        return
    path = writable(session.workspace, arguments["path"])
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_PICTURE_SECONDS):
            path.write_bytes(await tab.page.screenshot(type="jpeg", quality=60))


async def pdf_save(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Save the page as a PDF in the workspace."""
    tab = await session.free_tab()
    name = arguments.get("filename") or ""
    path = writable(session.workspace, name) if name else free_path(session.workspace.resolve(), "page.pdf")
    try:
        async with asyncio.timeout(_PAGE_SECONDS):
            await tab.page.pdf(path=path)
    except TimeoutError:
        raise BrowserFailure(HANGS) from None
    relative = str(path.relative_to(session.workspace.resolve()))
    answer.add(f"- Saved the page as {relative} ({size_of(path)})")
    answer.structured = {"path": relative}


async def console_messages(session: BrowserSession, _: dict[str, Any], answer: Answer) -> None:
    """List what the page wrote to its console since it was opened."""
    tab = await session.tab()
    answer.add("\n".join(tab.console) or "The page has written nothing to its console.")


async def network_requests(session: BrowserSession, _: dict[str, Any], answer: Answer) -> None:
    """List what the page requested since it was opened."""
    tab = await session.tab()
    lines = [await _request_line(request) for request in tab.requests]
    answer.add("\n".join(lines) or "The page has requested nothing.")


async def _request_line(request: Request) -> str:
    line = f"[{request.method}] {request.url}"
    if request.failure:
        return f"{line} => failed: {request.failure}"
    if request.timing["responseEnd"] < 0:
        return f"{line} => under way"
    response = await request.response()
    return line if response is None else f"{line} => [{response.status}] {response.status_text}".rstrip()


async def evaluate(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Run a JavaScript function in the page, or on an element, and return its result as JSON."""
    tab = await session.free_tab()
    result = await _evaluated(tab, arguments)
    text = json.dumps(result, ensure_ascii=False, indent=2, default=str)
    answer.add(text)
    if len(text) <= _MAX_STRUCTURED:
        answer.structured = {"result": json.loads(text)}


async def _evaluated(tab: Tab, arguments: dict[str, Any]) -> Any:
    ref = arguments.get("ref")
    try:
        async with asyncio.timeout(_PAGE_SECONDS):
            if ref:
                locator = await find_element(tab, ref, arguments.get("element") or "")
                return await tab.run(locator.evaluate(arguments["function"]))
            return await tab.run(tab.page.evaluate(arguments["function"]))
    except TimeoutError:
        raise BrowserFailure(f"The function did not end within {_PAGE_SECONDS:g} s. {HANGS}") from None
    except Error as error:
        if tab.page.is_closed() or tab.crashed:
            raise
        raise BrowserFailure(f"The function failed: {error.message}") from None
