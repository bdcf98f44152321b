"""Protections of people who watch screens and take over."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TOOLS = "services/sandmeshd/agent"
_BROWSER = "tests/mesh/browser/test_browser_takeover.py"
_DESKTOP = "tests/mesh/desktop/test_desktop_takeover.py"

SCREENS = (
    Mutant(
        "a person who takes over ends the agent's call",
        f"{_TOOLS}/tools/viewers.py",
        "            await self._interrupt()\n",
        "",
        f"{_DESKTOP}::test_a_long_text_ends_when_a_person_takes_over",
    ),
    Mutant(
        "a key that an ended action held is released",
        f"{_TOOLS}/tools/desktop/screen.py",
        "if release := released(words):",
        "if release := released(()):",
        f"{_DESKTOP}::test_a_key_that_was_held_is_released_when_a_person_takes_over",
    ),
    Mutant(
        "a click that waits is not left to Playwright",
        f"{_TOOLS}/userland/browser/actions.py",
        "partial(locator.click, trial=True))",
        "locator.click)",
        f"{_BROWSER}::test_a_click_that_waits_is_not_made_after_a_person_took_over",
    ),
)
