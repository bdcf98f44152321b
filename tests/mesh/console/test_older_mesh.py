"""The console with a mesh that is older, or of which a part is: every page says what is missing, and shows the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from sandmesh import BaseSandboxAsync
from sandmeshd.facades.console.app import open_console
from tests.mesh.console.older_mesh import older_mesh
from tests.mesh.console.person import ConsoleWorld, open_world, show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SLOW = 30_000
OLDER = "older than the console"
TABS = ("usage", "network", "ports", "forks", "logs", "files")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[ConsoleWorld]:
    """Run one mesh and browser for all tests."""
    async with open_world() as running:
        yield running


async def go(page: Page, place: str) -> None:
    """Go to a view."""
    await page.evaluate("hash => { location.hash = hash }", f"#/{place}")


async def test_without_events_the_list_is_shown_and_read_again(world: ConsoleWorld) -> None:
    async with (
        older_mesh(world.address, ["ListEvents", "WatchSandboxes"]) as address,
        open_console(address, "127.0.0.1:0") as console,
        world.person(console.link(None)) as person,
    ):
        page = person.page
        await expect(page.get_by_text(f"this mesh is {OLDER}")).to_be_visible(timeout=SLOW)
        async with BaseSandboxAsync(base_url=world.address) as box:
            await expect(page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
            await show(page, box, "timeline")
            await expect(page.get_by_text("No events.")).to_be_visible(timeout=SLOW)
            await expect(page.locator("h1")).to_contain_text(box.sandbox_id)
        assert person.complaints == []


async def test_views_say_what_an_older_mesh_does_not_have_and_show_the_rest(world: ConsoleWorld) -> None:
    missing = ["QuotaService", "AuditService", "GetMeshHealth", "ListSnapshots"]
    async with (
        older_mesh(world.address, missing) as address,
        open_console(address, "127.0.0.1:0") as console,
        world.person(console.link(None)) as person,
    ):
        page = person.page
        await go(page, "access")
        await expect(page.get_by_text("does not show: quotas, usage, audit")).to_be_visible(timeout=SLOW)
        await expect(page.get_by_role("heading", name="Tokens")).to_be_visible()
        await go(page, "mesh")
        await expect(page.get_by_text("does not show: nodes and health")).to_be_visible(timeout=SLOW)
        await expect(page.get_by_text("No create waits.")).to_be_visible()
        await expect(page.get_by_text("base", exact=True)).to_be_visible()
        await go(page, "snapshots")
        await expect(page.get_by_role("alert").filter(has_text=OLDER)).to_be_visible(timeout=SLOW)
        assert person.complaints == []


async def test_each_part_of_a_sandboxs_page_says_so_where_the_mesh_answers_none_of_it(world: ConsoleWorld) -> None:
    missing = ["PortService", "GetNetwork", "CallService", "GetSandboxLogs", "ListTemplates", "ListSnapshots"]
    async with (
        BaseSandboxAsync(base_url=world.address) as box,
        older_mesh(world.address, missing) as address,
        open_console(address, "127.0.0.1:0") as console,
        world.person(console.link(None)) as person,
    ):
        page = person.page
        await show(page, box, "timeline")
        await expect(page.locator(".timeline")).to_contain_text("leased", timeout=SLOW)
        for tab in TABS:
            await show(page, box, tab)
            await expect(page.get_by_role("alert").filter(has_text=OLDER)).to_be_visible(timeout=SLOW)
        await go(page, "mesh")
        await expect(page.get_by_text("does not show: templates")).to_be_visible(timeout=SLOW)
        assert person.complaints == []
