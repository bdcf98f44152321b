"""What keeps an action from working that waiting does not mend, said in the page's own terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from playwright.async_api import Error, Locator

from sandmeshd.agent.userland.browser.answer import BrowserFailure

_MILLISECONDS: Final = 500.0
_MOST_NAMED: Final = 50
_LONGEST: Final = 80
_STATE: Final = """element => [
  element.matches(':disabled') || element.closest('[aria-disabled=true]') !== null,
  Boolean(element.readOnly),
]"""
_OPTIONS: Final = """(element, most) => element.tagName !== 'SELECT' ? null : {
  multiple: element.multiple,
  options: Array.from(element.options).slice(0, most).map(
    each => [each.value, each.label, each.disabled || Boolean(each.closest('optgroup:disabled'))]),
  count: element.options.length,
}"""
_DISABLED: Final = "it is disabled. What enables it may be a field to fill or a box to check: look at browser_snapshot."
_READ_ONLY: Final = "it is read-only: what it shows is set in another way, perhaps by a click on it."
_MOST_READ: Final = 10_000


async def check_state(target: Locator | None, what: str, *, edits: bool) -> None:
    """Check that an element may take an action in a moment, `what` being that action, which edits it or not.

    Raises:
        BrowserFailure: It takes none: the message says why.
    """
    if target is None:
        return
    try:
        disabled, readonly = await target.evaluate(_STATE, timeout=_MILLISECONDS)
    except Error:
        return
    why = _DISABLED if disabled else _READ_ONLY if readonly and edits else ""
    if why:
        raise BrowserFailure(f"{what} did not work: {why}")


async def check_options(target: Locator, name: str, wanted: Sequence[str]) -> None:
    """Check that a drop-down has options, by value or label.

    Raises:
        BrowserFailure: It has not, or is not one; the message has those it has.
    """
    try:
        found: dict[str, Any] | None = await target.evaluate(_OPTIONS, _MOST_READ, timeout=_MILLISECONDS)
    except Error:
        return
    if found is None:
        raise BrowserFailure(f"{name} is not a drop-down of the browser's own: click on it, then on the option.")
    options: list[tuple[str, str, bool]] = [(each[0], each[1], each[2]) for each in found["options"]]
    usable = {text for value, label, disabled in options if not disabled for text in (value, label.strip())}
    missing = [each for each in wanted if each.strip() not in usable and each not in usable]
    if missing and found["count"] <= _MOST_READ:
        listed = ", ".join(_named(*each) for each in options[:_MOST_NAMED]) or "none"
        more = f", and {len(options) - _MOST_NAMED} more" if len(options) > _MOST_NAMED else ""
        raise BrowserFailure(f"{name} has no option {missing[0]!r} to select. Its options are: {listed}{more}.")
    if len(wanted) > 1 and not found["multiple"]:
        raise BrowserFailure(f"{name} takes one option, not {len(wanted)}.")


def _named(value: str, label: str, disabled: bool) -> str:
    text = repr(label[:_LONGEST]) + (f" (value {value[:_LONGEST]!r})" if value != label else "")
    return f"{text} (disabled)" if disabled else text
