"""The tools that act on elements of the page, as a person with mouse and keyboard does."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Error, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.obstacles import check_options, check_state
from sandmeshd.agent.userland.browser.session import ACTION_SECONDS, BrowserSession, find_element
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

_STEP_MILLISECONDS: Final = 1000.0
"""For how long at most a step that changes the page waits: so long may a person who takes over have to wait."""
_FIRST_MILLISECONDS: Final = 500.0
"""After so long without success the element is asked what is wrong with it."""
_TYPED_AT_ONCE: Final = 20
_STEPS_OF_DRAG: Final = 10
"""Pages that follow the mouse see it move."""
_KEYS: Final = "Enter, Tab, Escape, Backspace, ArrowLeft, PageDown, F5, a, Control+a, Shift+Tab"

Step = Callable[..., Coroutine[Any, Any, Any]]
"""Begins an action that fails after `timeout` milliseconds."""


async def _act(tab: Tab, what: str, act: Step, target: Locator | None = None, prepare: Step | None = None) -> None:
    """Carry out an action on a target, once that is ready for it.

    `prepare` waits for that and changes nothing, so that it may be left under way; `act` is short.

    Raises:
        BrowserFailure: It did not work; the message says why.
    """
    try:
        await _attempt(tab, what, act, target, prepare)
    except PlaywrightTimeout as error:
        if not await tab.is_responsive():
            raise BrowserFailure(HANGS) from None
        raise BrowserFailure(
            f"{what} did not work within {ACTION_SECONDS:g} s: {_reason(error)} "
            "Call browser_snapshot to see the page as it is."
        ) from None
    except Error as error:
        if "Unknown key" in error.message:
            raise BrowserFailure(f"{_first(error)}. Keys are named like {_KEYS}.") from None
        if tab.page.is_closed() or tab.crashed:
            raise
        raise BrowserFailure(f"{what} did not work: {_first(error)}") from None


async def _attempt(tab: Tab, what: str, act: Step, target: Locator | None, prepare: Step | None) -> None:
    until, limit, step = time.monotonic() + ACTION_SECONDS, _FIRST_MILLISECONDS, _STEP_MILLISECONDS
    while True:
        acting = False
        try:
            if prepare is not None:
                await tab.prepare(prepare(timeout=limit))
            if tab.dialog is None:
                acting = True
                await tab.step(act(timeout=step))
        except PlaywrightTimeout as error:
            # What prepares a click moves the mouse and says that it performs one, too.
            if acting and _was_performed(error):
                await _until_responsive(tab, until)
                return
            await check_state(target, what, edits=prepare is None)
            limit, step = max(_FIRST_MILLISECONDS, (until - time.monotonic()) * 1000), step * 2
            if time.monotonic() >= until:
                raise
        else:
            return


def _once(press: Callable[..., Coroutine[Any, Any, None]], keys: str) -> Step:
    """Return a step that presses keys and is not tried again: some of them may have been pressed."""

    def begin(timeout: float) -> Coroutine[Any, Any, None]:
        del timeout
        return press(keys, timeout=ACTION_SECONDS * 1000)

    return begin


def _was_performed(error: Error) -> bool:
    """Return whether a click was made, and what the page does by it takes long: to repeat it would click twice."""
    _, performed, since = error.message.rpartition("performing ")
    return bool(performed) and "intercepts" not in since


async def _until_responsive(tab: Tab, until: float) -> None:
    while not await tab.is_responsive():
        if time.monotonic() >= until:
            raise BrowserFailure(HANGS)


def _first(error: Error) -> str:
    return error.message.splitlines()[0].partition(": ")[2] or error.message.splitlines()[0]


def _reason(error: Error) -> str:
    """Return the last thing that Playwright waited for, which says why it could not act."""
    waited = [line.strip(" -") for line in error.message.splitlines()[1:] if line.strip().startswith("-")]
    telling = [line for line in waited if "intercepts" in line or "not " in line]
    return f"{(telling or waited or ['the element was not ready'])[-1]}."


async def _element(session: BrowserSession, arguments: dict[str, Any]) -> tuple[Tab, Locator, str]:
    tab = await session.free_tab()
    name = arguments.get("element") or ""
    locator = await find_element(tab, arguments["ref"], name)
    return tab, locator, f"{name!r} ({arguments['ref']})" if name else arguments["ref"]


async def click(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Click on an element."""
    tab, locator, name = await _element(session, arguments)
    how: dict[str, Any] = {"button": arguments.get("button") or "left", "modifiers": arguments.get("modifiers") or None}
    press = locator.dblclick if arguments.get("double_click") else locator.click
    await _act(tab, f"Clicking {name}", partial(press, **how), locator, partial(locator.click, trial=True))
    answer.with_page = True


async def hover(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Move the mouse over an element."""
    tab, locator, name = await _element(session, arguments)
    await _act(tab, f"Hovering over {name}", locator.hover, None, partial(locator.hover, trial=True))
    answer.with_page = True


async def drag(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Drag one element onto another."""
    tab = await session.free_tab()
    start = await find_element(tab, arguments["start_ref"], arguments["start_element"])
    end = await find_element(tab, arguments["end_ref"], arguments["end_element"])
    what, trial = f"Dragging {arguments['start_ref']}", partial(start.drag_to, end, trial=True)
    await _act(tab, what, partial(start.drag_to, end), None, trial)
    answer.with_page = True


async def type_text(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Replace an editable element's text, or type it key by key; then perhaps press Enter."""
    tab, locator, name = await _element(session, arguments)
    what, text = f"Typing into {name}", arguments["text"]
    if arguments.get("slowly"):
        await _act(tab, what, locator.focus, locator)
        for start in range(0, len(text), _TYPED_AT_ONCE):
            await _act(tab, what, _once(locator.press_sequentially, text[start : start + _TYPED_AT_ONCE]))
    else:
        await _act(tab, what, partial(locator.fill, text), locator)
    if arguments.get("submit") and tab.dialog is None:
        await _act(tab, f"Pressing Enter in {name}", _once(locator.press, "Enter"))
    answer.with_page = True


async def select_option(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Select options of a drop-down by value or label."""
    tab, locator, name = await _element(session, arguments)
    await check_options(locator, name, arguments["values"])
    await _act(tab, f"Selecting in {name}", partial(locator.select_option, arguments["values"]), locator)
    answer.with_page = True


async def press_key(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Press a key or a combination."""
    tab, key = await session.free_tab(), arguments["key"]

    def press(timeout: float) -> Coroutine[Any, Any, None]:
        del timeout
        return tab.page.keyboard.press(key)

    await _act(tab, f"Pressing {key}", press)
    answer.with_page = True


async def fill_form(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Fill several fields, in their order."""
    tab = await session.free_tab()
    for field in arguments["fields"]:
        locator = await find_element(tab, field["ref"], field["name"])
        name = f"{field['name']!r} ({field['ref']})"
        if field["type"] == "combobox":
            await check_options(locator, name, [field["value"]])
        await _act(tab, f"Filling {name}", _filling(locator, field["type"], field["value"]), locator)
    answer.with_page = True


def _filling(locator: Locator, kind: str, value: str) -> Step:
    if kind in ("checkbox", "radio"):
        return partial(locator.set_checked, value.lower() == "true")
    return partial(locator.select_option, value) if kind == "combobox" else partial(locator.fill, value)


async def click_at(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Click at a point."""
    tab = await session.free_tab()
    x, y = await _point(tab, arguments["x"], arguments["y"])
    times = 2 if arguments.get("double_click") else 1
    click = tab.page.mouse.click(x, y, click_count=times, button=arguments.get("button") or "left")
    await tab.step(click)
    answer.with_page = True


async def move_to(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Move the mouse to a point."""
    tab = await session.free_tab()
    x, y = await _point(tab, arguments["x"], arguments["y"])
    await tab.step(tab.page.mouse.move(x, y))
    answer.with_page = True


async def drag_to(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Drag from a point to another."""
    tab = await session.free_tab()
    start = await _point(tab, arguments["start_x"], arguments["start_y"])
    end = await _point(tab, arguments["end_x"], arguments["end_y"])
    await tab.step(_dragged(tab, start, end))
    answer.with_page = True


async def _dragged(tab: Tab, start: tuple[float, float], end: tuple[float, float]) -> None:
    await tab.page.mouse.move(*start)
    await tab.page.mouse.down()
    try:
        await tab.page.mouse.move(*end, steps=_STEPS_OF_DRAG)
    finally:
        await tab.page.mouse.up()


async def turn_wheel(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Turn the mouse's wheel."""
    tab = await session.free_tab()
    await tab.step(tab.page.mouse.wheel(arguments["delta_x"], arguments["delta_y"]))
    answer.with_page = True


async def _point(tab: Tab, x: float, y: float) -> tuple[float, float]:
    """Return a point that is on the page as it is seen.

    Raises:
        BrowserFailure: It is outside.
    """
    size = tab.page.viewport_size
    if size is not None and not (x < size["width"] and y < size["height"]):
        seen = f"{size['width']} x {size['height']}"
        raise BrowserFailure(f"({x:g}, {y:g}) is outside of what is seen of the page, which has {seen} pixels.")
    return x, y


async def handle_dialog(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Accept or dismiss the open dialog."""
    tab = await session.tab()
    dialog, tab.dialog = tab.dialog, None
    if dialog is None:
        raise BrowserFailure("No dialog is open. One opens when the page calls alert, confirm or prompt.")
    text = arguments.get("prompt_text")
    action = dialog.accept(dialog.default_value if text is None else text) if arguments["accept"] else dialog.dismiss()
    await tab.run(action)
    answer.with_page = True


async def file_upload(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Choose files in the open file chooser."""
    tab = await session.free_tab()
    paths = [_readable(session.workspace, path) for path in arguments["paths"]]
    if tab.chooser is None:
        raise BrowserFailure("No file chooser is open: click the page's button or field for files first.")
    chooser, tab.chooser = tab.chooser, None
    await _act(tab, "Choosing the files", partial(chooser.set_files, paths))
    answer.with_page = True


def _readable(workspace: Path, path: str) -> Path:
    found = (workspace / path).resolve()
    if not found.is_relative_to(workspace.resolve()):
        raise BrowserFailure(f"{path!r} is outside of the workspace: copy it below {workspace} first.")
    if not found.is_file():
        raise BrowserFailure(f"{path!r} is not a file of the workspace.")
    return found
