"""What a person does with keys only, and what a page must show them meanwhile."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Locator, Page

MARK = """() => {
  const all = document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]');
  const can = one => !one.disabled && one.tabIndex >= 0 && one.checkVisibility() && !one.closest('.xterm');
  const usable = [...all].filter(can);
  usable.forEach((one, at) => { one.dataset.stop = at; });
  return usable.map(one => one.outerHTML.slice(0, 120));
}"""
"""Numbers what can have the focus, and returns it in its order."""
STOP = """() => {
  const one = document.activeElement, style = getComputedStyle(one), place = one.getBoundingClientRect();
  const shown = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0)
    && place.width > 0 && place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
  return {stop: one.dataset.stop ?? null, shown, what: one.outerHTML.slice(0, 120)};
}"""
"""Returns which of them has the focus, and whether a person sees that."""
MOST = 120


async def stops(page: Page) -> tuple[list[str], list[str]]:
    """Press Tab from the start of a page to its end; return what was never reached, and what had no visible focus."""
    listed: list[str] = await page.evaluate(MARK)
    await page.evaluate("document.querySelector('.skip').focus()")
    reached: dict[str, Any] = {}
    for _ in range(MOST):
        found = await page.evaluate(STOP)
        if found["stop"] is None or found["stop"] in reached:
            break
        reached[found["stop"]] = found
        await page.keyboard.press("Tab")
    missed = [what for at, what in enumerate(listed) if str(at) not in reached]
    return missed, [one["what"] for one in reached.values() if not one["shown"]]


async def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until something has the focus."""
    for _ in range(MOST):
        if await target.evaluate("one => one === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {target}")


async def press_on(page: Page, target: Locator, key: str = "Enter") -> None:
    """Go to something by Tab, and press a key there."""
    await tab_to(page, target)
    await page.keyboard.press(key)


async def has_focus(page: Page, selector: str) -> bool:
    """Return whether the focus is in a part of the page."""
    found: bool = await page.evaluate("selector => !!document.activeElement.closest(selector)", selector)
    return found
