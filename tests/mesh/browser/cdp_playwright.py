"""A program as users have it: Playwright, connected to a browser at a URL."""

from __future__ import annotations

import sys

from playwright.sync_api import sync_playwright


def main(url: str) -> None:
    """Fill a form in the first tab, and open another one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(url)
        (context,) = browser.contexts
        page = context.pages[0]
        page.get_by_label("Name").fill("Grüße, 你好")
        page.get_by_label("Gift").check()
        page.get_by_role("button", name="Order").click()
        page.wait_for_url("**/order?**")
        sys.stdout.write(page.inner_text("p") + "\n")
        other = context.new_page()
        other.goto("http://localhost:8000/second")
        sys.stdout.write(other.get_by_text("It came late").inner_text() + "\n")
        sys.stdout.write(str(other.screenshot().startswith(b"\x89PNG")) + "\n")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
