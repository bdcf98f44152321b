"""Pages of which a part does not arrive, as where the network of the browser changes, and presses that are lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from sandmesh import BrowserSandboxAsync
from tests.mesh.console.person import ConsoleWorld, open_world

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]

SLOW = 60_000
LOST = "A part of this page did not arrive"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[ConsoleWorld]:
    """Run one mesh, console and browser for all tests."""
    async with open_world() as running:
        yield running


async def lose(page: Page, pattern: str, times: int, body: str | None = None) -> list[str]:
    """Lose so many requests, with a body; return those that came."""
    came: list[str] = []

    async def handle(route: Route) -> None:
        if route.request.post_data == body:
            came.append(route.request.url)
        lost = route.request.post_data == body and len(came) <= times
        await (route.abort("internetdisconnected") if lost else route.continue_())

    await page.route(pattern, handle)
    return came


async def test_a_console_that_arrives_in_part_is_loaded_again(world: ConsoleWorld) -> None:
    for times, shown in ((2, "No sandbox is in use"), (9, LOST)):
        page = await world.browser.new_page()
        await lose(page, "**/timeline.js", times)
        await page.goto(world.console.link(None))
        await expect(page.get_by_text(shown)).to_be_visible(timeout=SLOW)
        await page.close()


async def test_a_view_that_arrives_in_part_is_loaded_again_and_a_lost_press_is_repeated(world: ConsoleWorld) -> None:
    async with BrowserSandboxAsync(base_url=world.address, timeout=120) as box:
        url = await box.browser.url()
        for times, shown in ((2, "The agent has the browser"), (9, LOST)):
            page = await world.browser.new_page()
            await lose(page, "**/picture.js", times)
            await page.goto(url)
            await expect(page.get_by_text(shown)).to_be_visible(timeout=SLOW)
            if times == 2:
                came = await lose(page, "**/control*", 2, "take")
                await page.get_by_role("button", name="Take over").click()
                await expect(page.get_by_text("You have the browser")).to_be_visible(timeout=SLOW)
                assert len(came) == 3
            await page.close()
