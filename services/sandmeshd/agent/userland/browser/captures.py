"""The tools that look: snapshot, screenshot, PDF, console, network, and scripts of the caller's own."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Error, Locator, Page, Request
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import LARGEST_IMAGE, BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.downloads import free_path, size_of
from sandmeshd.agent.userland.browser.session import ACTION_SECONDS, BrowserSession, address, find_element
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

_QUALITIES: Final = (80, 50, 20)
_MAX_STRUCTURED: Final = 200_000
_LARGEST_SCREENSHOT: Final = 64 << 20
_BYTES_OF_PIXEL: Final = 3
_PIXELS_A_SECOND: Final = 1_000_000
"""How fast Chromium compresses images at least."""
_WHOLE_SIZE: Final = """() => {
  const root = document.documentElement, body = document.body || root;
  return [Math.max(root.scrollWidth, body.scrollWidth), Math.max(root.scrollHeight, body.scrollHeight)];
}"""
_PICTURE_SECONDS: Final = 5.0
_WARM_PAGE: Final = "data:text/html,<title>Warm</title><p>Warm"
_PAGE_SECONDS: Final = 30.0


async def snapshot(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Show the page, or an element of it, as its accessibility tree."""
    await session.free_tab()
    answer.snapshot_arguments = {"start_line": arguments.get("start_line") or 1, "ref": arguments.get("ref") or ""}
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


async def take_screenshot(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Take a picture of the page or of an element; with a file name it is kept in the workspace too."""
    tab = await session.free_tab()
    name = arguments.get("filename") or ""
    target: Page | Locator = tab.page
    if arguments.get("ref"):
        target = await find_element(tab, arguments["ref"], arguments.get("element") or "")
    kind: Literal["png", "jpeg"] = "png" if arguments.get("raw") or name.endswith(".png") else "jpeg"
    whole = bool(arguments.get("full_page"))
    path = writable(session.workspace, name) if name else None
    shot = await _shot(target, whole=whole)
    image = await shot.take(kind, _QUALITIES[0])
    if path is not None:
        path.write_bytes(image)
        answer.add(f"- Saved the screenshot as {path.relative_to(session.workspace.resolve())} ({size_of(path)})")
    for quality in _QUALITIES:
        if len(image) <= LARGEST_IMAGE:
            answer.add_image(image, f"image/{kind}")
            return
        kind = "jpeg"
        image = await shot.take(kind, quality)
    answer.add("- The screenshot is too large to show: pass a filename to save it, or a ref to show less of the page.")


@dataclass(frozen=True)
class _Shot:
    """What is to be seen, and for how long it may take to draw and compress it."""

    target: Page | Locator
    whole: bool
    seconds: float

    async def take(self, kind: Literal["png", "jpeg"], quality: int) -> bytes:
        """Take an image.

        Raises:
            BrowserFailure: The page does not answer, or the image is too large.
        """
        how, limit = quality if kind == "jpeg" else None, self.seconds * 1000
        try:
            async with asyncio.timeout(self.seconds + 1):
                if isinstance(self.target, Page):
                    image = await self.target.screenshot(type=kind, quality=how, full_page=self.whole, timeout=limit)
                else:
                    image = await self.target.screenshot(type=kind, quality=how, timeout=limit)
        except (PlaywrightTimeout, TimeoutError):
            raise BrowserFailure(HANGS) from None
        if len(image) > _LARGEST_SCREENSHOT:
            raise _too_large(f"has {len(image) >> 20} MiB")
        return image


async def _shot(target: Page | Locator, *, whole: bool) -> _Shot:
    """Return the screenshot to take.

    Raises:
        BrowserFailure: It would be too large, or the page does not answer.
    """
    try:
        async with asyncio.timeout(ACTION_SECONDS):
            width, height = await _pixels(target, whole=whole)
    except (PlaywrightTimeout, TimeoutError):
        raise BrowserFailure(HANGS) from None
    # Ahead of it, since Chromium would take all of the sandbox's memory, and long, for an image that is then refused.
    if width * height * _BYTES_OF_PIXEL > _LARGEST_SCREENSHOT:
        raise _too_large(f"would have {width} x {height} pixels")
    return _Shot(target, whole, ACTION_SECONDS + width * height / _PIXELS_A_SECOND)


async def _pixels(target: Page | Locator, *, whole: bool) -> tuple[int, int]:
    if not isinstance(target, Page):
        box = await target.bounding_box(timeout=ACTION_SECONDS * 1000)
        return (round(box["width"]), round(box["height"])) if box else (0, 0)
    if whole:
        found: list[float] = await target.evaluate(_WHOLE_SIZE)
        return round(found[0]), round(found[1])
    size = target.viewport_size
    return (size["width"], size["height"]) if size else (0, 0)


def _too_large(how: str) -> BrowserFailure:
    return BrowserFailure(
        f"The screenshot {how}, and one may have {_LARGEST_SCREENSHOT >> 20} MiB: pass a ref to show less of the page, "
        "leave out full_page and scroll, or save it by browser_pdf_save."
    )


async def warm_up(session: BrowserSession, _: dict[str, Any], __: BrowserAnswer) -> None:
    """Start the browser and do once, on a separate page, what first calls do: their code is loaded then."""
    context = await session.context()
    page = await context.new_page()
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_PAGE_SECONDS):
            await page.goto(_WARM_PAGE)
            await page.title()
            await page.aria_snapshot(mode="ai")
            await page.screenshot(type="jpeg", quality=_QUALITIES[0])
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_PAGE_SECONDS):
            await page.close()
    await session.tab()


async def trace_picture(session: BrowserSession, arguments: dict[str, Any], _: BrowserAnswer) -> None:
    """Write a small picture of the page for a trace; nothing where none is shown, or it does not answer."""
    tab = session.current
    if tab is None or tab.dialog is not None or tab.crashed:
        return
    path = writable(session.workspace, arguments["path"])
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(_PICTURE_SECONDS):
            path.write_bytes(await tab.page.screenshot(type="jpeg", quality=60))


async def pdf_save(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
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


async def console_messages(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """List what the page wrote to its console since it was opened."""
    tab = await session.tab()
    answer.add("\n".join(tab.console) or "The page has written nothing to its console.")


async def network_requests(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """List what the page requested since it was opened."""
    tab = await session.tab()
    lines = [await _request_line(session, request) for request in tab.requests]
    answer.add("\n".join(lines) or "The page has requested nothing.")


async def _request_line(session: BrowserSession, request: Request) -> str:
    line = f"[{request.method}] {address(session, request.url)}"
    if request.failure:
        return f"{line} => failed: {request.failure}"
    if request.timing["responseEnd"] < 0:
        return f"{line} => under way"
    response = await request.response()
    return line if response is None else f"{line} => [{response.status}] {response.status_text}".rstrip()


async def evaluate(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
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
