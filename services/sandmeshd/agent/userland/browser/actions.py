"""The tools that act on elements of the page, as a person with mouse and keyboard does."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Error, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeout

from sandmeshd.agent.userland.browser.answer import Answer, BrowserFailure
from sandmeshd.agent.userland.browser.session import ACTION_SECONDS, BrowserSession, find_element
from sandmeshd.agent.userland.browser.tab import HANGS, Tab

_LIMIT: Final = ACTION_SECONDS * 1000
_KEYS: Final = "Enter, Tab, Escape, Backspace, ArrowLeft, PageDown, F5, a, Control+a, Shift+Tab"


async def _act(tab: Tab, what: str, action: Coroutine[Any, Any, Any]) -> None:
    try:
        await tab.run(action)
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


async def click(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Click on an element."""
    tab, locator, name = await _element(session, arguments)
    how: dict[str, Any] = {"button": arguments.get("button") or "left", "modifiers": arguments.get("modifiers") or None}
    press = locator.dblclick if arguments.get("double_click") else locator.click
    await _act(tab, f"Clicking {name}", press(timeout=_LIMIT, **how))
    answer.with_page = True


async def hover(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Move the mouse over an element."""
    tab, locator, name = await _element(session, arguments)
    await _act(tab, f"Hovering over {name}", locator.hover(timeout=_LIMIT))
    answer.with_page = True


async def drag(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Drag one element onto another."""
    tab = await session.free_tab()
    start = await find_element(tab, arguments["start_ref"], arguments["start_element"])
    end = await find_element(tab, arguments["end_ref"], arguments["end_element"])
    await _act(tab, f"Dragging {arguments['start_ref']}", start.drag_to(end, timeout=_LIMIT))
    answer.with_page = True


async def type_text(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Replace an editable element's text, or type it key by key; then perhaps press Enter."""
    tab, locator, name = await _element(session, arguments)
    if arguments.get("slowly"):
        await _act(tab, f"Typing into {name}", locator.press_sequentially(arguments["text"], timeout=_LIMIT))
    else:
        await _act(tab, f"Typing into {name}", locator.fill(arguments["text"], timeout=_LIMIT))
    if arguments.get("submit") and tab.dialog is None:
        await _act(tab, f"Pressing Enter in {name}", locator.press("Enter", timeout=_LIMIT))
    answer.with_page = True


async def select_option(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Select options of a drop-down by value or label."""
    tab, locator, name = await _element(session, arguments)
    await _act(tab, f"Selecting in {name}", locator.select_option(arguments["values"], timeout=_LIMIT))
    answer.with_page = True


async def press_key(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Press a key or a combination."""
    tab = await session.free_tab()
    await _act(tab, f"Pressing {arguments['key']}", tab.page.keyboard.press(arguments["key"]))
    answer.with_page = True


async def fill_form(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Fill several fields, in their order."""
    tab = await session.free_tab()
    for field in arguments["fields"]:
        locator = await find_element(tab, field["ref"], field["name"])
        await _act(tab, f"Filling {field['name']!r} ({field['ref']})", _fill(locator, field["type"], field["value"]))
    answer.with_page = True


async def _fill(locator: Locator, kind: str, value: str) -> None:
    if kind in ("checkbox", "radio"):
        await locator.set_checked(value.lower() == "true", timeout=_LIMIT)
    elif kind == "combobox":
        await locator.select_option(value, timeout=_LIMIT)
    else:
        await locator.fill(value, timeout=_LIMIT)


async def handle_dialog(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Accept or dismiss the open dialog."""
    tab = await session.tab()
    dialog, tab.dialog = tab.dialog, None
    if dialog is None:
        raise BrowserFailure("No dialog is open. One opens when the page calls alert, confirm or prompt.")
    text = arguments.get("prompt_text") or ""
    action = dialog.accept(text) if arguments["accept"] else dialog.dismiss()
    await tab.run(action)
    answer.with_page = True


async def file_upload(session: BrowserSession, arguments: dict[str, Any], answer: Answer) -> None:
    """Choose files in the open file chooser."""
    tab = await session.free_tab()
    paths = [_readable(session.workspace, path) for path in arguments["paths"]]
    if tab.chooser is None:
        raise BrowserFailure("No file chooser is open: click the page's button or field for files first.")
    chooser, tab.chooser = tab.chooser, None
    await _act(tab, "Choosing the files", chooser.set_files(paths, timeout=_LIMIT))
    answer.with_page = True


def _readable(workspace: Path, path: str) -> Path:
    found = (workspace / path).resolve()
    if not found.is_relative_to(workspace.resolve()):
        raise BrowserFailure(f"{path!r} is outside of the workspace: copy it below {workspace} first.")
    if not found.is_file():
        raise BrowserFailure(f"{path!r} is not a file of the workspace.")
    return found
