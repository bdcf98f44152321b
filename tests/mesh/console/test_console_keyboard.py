"""The console by keyboard, and what it shows of a sandbox's use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect

from sandmesh import BaseSandboxAsync, GuiSandboxAsync
from sandmesh.mesh import MeshAsync
from tests.mesh.console.keyboard import has_focus, press_on, stops, tab_to
from tests.mesh.console.person import ConsoleWorld, open_world, show, typed
from tests.mesh.console.walk import WATCH, delays, storming

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SLOW = 30_000
TABS = ("Timeline", "Usage", "Files", "Python", "Network", "Ports", "Forks", "Logs")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[ConsoleWorld]:
    """Run one mesh, console and browser for all tests."""
    async with open_world() as running:
        yield running


def box_of(world: ConsoleWorld, **labels: str) -> BaseSandboxAsync:
    return BaseSandboxAsync(base_url=world.address, labels=labels)


async def test_every_view_is_reached_and_used_by_keyboard(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await expect(page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
        for view in ("Events", "Snapshots", "Mesh", "Access", "Sandboxes"):
            await press_on(page, page.get_by_role("navigation").get_by_role("link", name=view))
            await expect(page.get_by_role("heading", level=1)).to_contain_text(view)
            await expect(page.locator(".loading")).to_have_count(0)
            assert await stops(page) == ([], []), view
        await press_on(page, page.get_by_role("link", name=box.sandbox_id))
        for tab in TABS:
            await press_on(page, page.locator(".tabs").get_by_role("link", name=tab))
            await expect(page.locator(".tabs [aria-current]")).to_have_text(tab)
            await expect(page.locator(".loading")).to_have_count(0)
            assert await stops(page) == ([], []), tab
        assert person.complaints == []


async def test_the_first_tab_skips_to_the_content(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await expect(person.page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
        await person.page.keyboard.press("Tab")
        await person.page.keyboard.press("Enter")
        await person.page.keyboard.press("Tab")
        assert await has_focus(person.page, "main")


async def test_dialogs_keep_the_focus_and_return_it(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        kill = page.get_by_role("button", name=f"Kill {box.sandbox_id}")
        for trigger in (page.get_by_role("button", name="Share"), kill):
            await press_on(page, trigger)
            await expect(page.get_by_role("dialog")).to_be_visible()
            for _ in range(6):
                # Beside the dialog there is only the browser itself, which a page sees as its body.
                assert await has_focus(page, "dialog") or not await has_focus(page, "body *")
                await page.keyboard.press("Tab")
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert await trigger.evaluate("one => one === document.activeElement")
        await page.keyboard.press("Enter")
        await press_on(page, page.get_by_role("button", name="Kill it"))
        await expect(kill).to_have_count(0, timeout=SLOW)
        # What had the focus is gone: the keyboard goes on in the content, not at the page's start.
        await expect(page.locator("main:focus, main :focus")).to_have_count(1)


async def test_a_terminal_is_left_by_keyboard(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await show(page, box, "timeline")
        await press_on(page, page.locator(".tabs").get_by_role("link", name="Terminal"))
        rows = page.locator(".xterm-rows")
        await expect(rows).to_contain_text("$", timeout=SLOW)
        await page.keyboard.type("ec")
        await page.keyboard.press("Tab")
        await typed(page, "ho $((6*7))")
        assert await has_focus(page, ".xterm")
        await page.keyboard.press("Shift+F6")
        assert await has_focus(page, ".tabs [aria-current]")
        await tab_to(page, page.locator(".tabs").get_by_role("link", name="Logs"))


async def test_a_timeline_shows_calls_and_servers(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await box.run_shell_command("echo secret-argument")
        await box.run_ipython_cell("1 / 0")
        await box.run_shell_command("sleep 10", timeout=0.2)
        await box.add_mcp_servers({"mcpServers": {"absent": {"command": "no-such-program"}}})
        await show(page, box, "timeline")
        calls = page.locator(".timeline li.call")
        await expect(calls.nth(0)).to_contain_text(re.compile(r"run_shell_command\s+[\d.]+ m?s · ok"), timeout=SLOW)
        await expect(calls.nth(1)).to_contain_text(re.compile(r"run_ipython_cell\s+[\d.]+ m?s · error"))
        await expect(calls.nth(2)).to_contain_text(re.compile(r"run_shell_command\s+2\d\d ms · timed out"))
        await expect(page.get_by_role("row", name="absent")).to_contain_text("failed")
        await expect(page.locator("body")).not_to_contain_text("secret-argument")
        await page.get_by_label("Calls").uncheck()
        await expect(calls).to_have_count(0)
        assert [call.tool for call in await box.list_calls()][:3] == [
            "run_shell_command", "run_ipython_cell", "run_shell_command",
        ]  # fmt: skip


async def test_what_a_sandbox_uses_is_plotted(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        held = await box.processes.start(["python3", "-c", "data = bytearray(90 << 20); print('held'); input()"])
        await show(page, box, "usage")
        memory = page.locator(".plot", has=page.get_by_role("heading", name="Memory"))
        await expect(memory.locator(".now")).to_have_text(re.compile(r"^1\d\d MiB|^9\d MiB"), timeout=SLOW)
        await expect(page.locator(".plot canvas")).to_have_count(5)
        drawn = "all => all.every(one => one.width > 100 && one.toDataURL().length > 1000)"
        assert await page.locator(".plot canvas").evaluate_all(drawn)
        await page.evaluate("location.hash = '#/'")
        await page.get_by_label("Use", exact=True).check()
        row = page.get_by_role("row").filter(has_text=box.sandbox_id or "")
        await expect(row.locator("[data-name=Memory]")).to_have_text(re.compile("MiB"), timeout=SLOW)
        await held.kill()
        assert person.complaints == []


async def test_a_desktop_is_opened_from_the_page_of_its_sandbox(world: ConsoleWorld) -> None:
    box = GuiSandboxAsync(base_url=world.address)
    async with box, world.person(world.console.link(None)) as person:
        await show(person.page, box, "timeline")
        button = person.page.get_by_role("button", name="Open its desktop")
        for _ in range(2):
            async with person.page.context.expect_page() as waiting:
                await button.click(timeout=SLOW)
            view = await waiting.value
            await expect(view.get_by_role("button", name="Take over")).to_be_visible(timeout=SLOW)
            await view.close()
        assert [one.kind for one in await box.list_exposed()] == ["desktop"]


async def test_a_browser_without_websockets_is_told(world: ConsoleWorld) -> None:
    context = await world.browser.new_context()
    page = await context.new_page()
    await page.add_init_script("delete window.WebSocket")
    await page.goto(world.console.link(None))
    await expect(page.get_by_role("alert")).to_contain_text("no WebSockets")
    await context.close()


async def test_sockets_that_do_not_pass_are_told(world: ConsoleWorld) -> None:
    context = await world.browser.new_context()
    page = await context.new_page()
    await page.route_web_socket(re.compile("/live$"), lambda socket: asyncio.ensure_future(socket.close()))
    await page.goto(world.console.link(None))
    await expect(page.get_by_role("status").first).to_contain_text("has to pass on WebSockets", timeout=SLOW)
    await context.close()


async def test_without_a_link_or_by_another_name_a_page_says_what_to_do(world: ConsoleWorld) -> None:
    context = await world.browser.new_context()
    page = await context.new_page()
    origin = world.console.link(None).partition("/console/")[0]
    for place in ("", "/console", "/console/", "/console/#/mesh"):
        await page.goto("about:blank")
        await page.goto(origin + place)
        await expect(page.get_by_role("heading", name="The console is closed")).to_be_visible(timeout=SLOW)
        await expect(page.locator("pre")).to_have_text("sandmesh console")
    # A name that leads here and is not the console's, as of a page that rebinds it.
    await page.route("http://other.example/**", lambda route: asyncio.ensure_future(misnamed(page, route, origin)))
    await page.goto("http://other.example/console/")
    await expect(page.get_by_role("heading", name="The console is not here")).to_be_visible()
    await context.close()


async def misnamed(page: Page, route: Route, origin: str) -> None:
    """Answer with what the console answers to requests by another name."""
    answer = await page.request.get(f"{origin}/console/", headers={"Host": "other.example"})
    assert answer.status == 421
    await route.fulfill(status=421, content_type="text/html", body=await answer.text())


@pytest.mark.parametrize("scope", ["sandbox", "user", "read-only", "project-admin"])
async def test_a_token_of_any_scope_gets_views_that_say_what_it_may_not(world: ConsoleWorld, scope: str) -> None:
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(MeshAsync(world.address))
        box = await stack.enter_async_context(box_of(world))
        link = world.console.link(await secret_of(mesh, scope, box))
        person = await stack.enter_async_context(world.person(link))
        page = person.page
        for place in ("", "events", "snapshots", "mesh", "access", f"sandbox/{box.sandbox_id}/usage"):
            await page.evaluate("hash => { location.hash = hash }", f"#/{place}")
            await expect(page.locator("main")).not_to_be_empty()
            await expect(page.locator(".loading")).to_have_count(0, timeout=SLOW)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
        offered = await page.get_by_role("navigation", name="Views").get_by_role("link").all_inner_texts()
        assert ("Mesh" in offered, "Access" in offered) == (scope != "sandbox", scope not in ("sandbox", "user"))
        assert person.complaints == []


async def secret_of(mesh: MeshAsync, scope: str, box: BaseSandboxAsync) -> str:
    """Return a token of a scope."""
    match scope:
        case "sandbox":
            made = await mesh.tokens.create_for_sandbox(scope, box.sandbox_id or "")
        case "project-admin":
            made = await mesh.tokens.create_for_project(scope, "default")
        case "read-only":
            made = await mesh.tokens.create(scope, scope="read-only")
        case _:
            made = await mesh.tokens.create(scope)
    return made.secret


async def test_what_is_created_and_killed_meanwhile_is_seen(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await expect(person.page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
        await person.page.evaluate(WATCH)
        async with storming(world.address) as storm:
            gone = "Object.values(window.seen).filter(one => one.gone).length"
            async with asyncio.timeout(60):
                while await person.page.evaluate(gone) < 4:
                    pass
        async with asyncio.timeout(60):
            while (found := await delays(person.page, storm, 0)).unseen:
                pass
        assert len(found.creates) == len(found.kills) == len(storm.made) > 3
        assert storm.failures == []
        assert person.complaints == []
