"""The console in a real browser: what a person sees, does, and is protected from."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from tests.mesh.console.person import PHONE, ConsoleWorld, open_world

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SLOW = 30_000
HOSTILE = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[ConsoleWorld]:
    """Run one mesh, console and browser for all tests."""
    async with open_world() as running:
        yield running


def box_of(world: ConsoleWorld, **labels: str) -> BaseSandboxAsync:
    return BaseSandboxAsync(base_url=world.address, labels=labels)


async def show(page: Page, box: BaseSandboxAsync, tab: str) -> None:
    await page.evaluate("hash => { location.hash = hash }", f"#/sandbox/{box.sandbox_id}/{tab}")


async def run_code(page: Page, code: str) -> None:
    await page.locator("#code").fill(code)
    await page.keyboard.press("Shift+Enter")


async def no_shell_runs(box: BaseSandboxAsync) -> None:
    async with asyncio.timeout(60):
        while any(process.running for process in await box.processes.list()):
            pass


async def typed(page: Page, text: str) -> None:
    await page.locator(".xterm-helper-textarea").press_sequentially(text)
    await page.keyboard.press("Enter")


async def test_an_empty_mesh_shows_how_to_make_a_sandbox_and_then_shows_it(world: ConsoleWorld) -> None:
    async with world.person(world.console.link(None)) as person:
        page = person.page
        await expect(page.get_by_role("heading", name="No sandbox is in use")).to_be_visible(timeout=SLOW)
        await expect(page.locator("pre")).to_contain_text(world.address)
        async with box_of(world, job="seven") as box:
            link = page.get_by_role("link", name=box.sandbox_id)
            await expect(link).to_be_visible(timeout=SLOW)
            await page.keyboard.press("/")
            await page.keyboard.type("job=eight")
            await expect(link).to_be_hidden()
            await page.get_by_label("Filter").fill("job=seven")
            await link.focus()
            await page.keyboard.press("Enter")
            await expect(page.locator(".timeline")).to_contain_text("leased")
            # What its create's time went to, without a collector.
            phases = page.locator(".timeline li", has_text="leased").locator(".phases")
            await expect(phases).to_contain_text(re.compile(r"place [\d.]+ ms.*start [\d.]+ m?s", re.DOTALL))
            assert await phases.locator(".bar-of i").evaluate_all("all => all.every(one => one.offsetWidth > 0)")
            await page.get_by_role("button", name=f"Kill {box.sandbox_id}").click()
            await page.get_by_role("button", name="Kill it").click()
            await expect(page.locator(".notice")).to_contain_text("an administrator killed it", timeout=SLOW)
        origin = urlsplit(page.url).netloc
        assert {urlsplit(url).netloc for url in person.requests} == {origin}
        assert person.complaints == []


async def test_a_sandbox_is_renewed_paused_and_resumed(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await show(person.page, box, "timeline")
        before = await box.get_info()
        await person.page.get_by_role("button", name="Renew").click()
        await expect(person.page.get_by_role("status")).to_have_text("Renewed for one hour.")
        assert (await box.get_info())["lease"]["expire_time"] >= before["lease"]["expire_time"]
        await person.page.get_by_role("button", name="Pause").click()
        await expect(person.page.locator("h1 .state")).to_have_text("paused", timeout=SLOW)
        assert await box.get_status() == "paused"
        await show(person.page, box, "terminal")
        await expect(person.page.get_by_text("The sandbox is paused")).to_be_visible()
        await person.page.get_by_role("button", name="Resume").click()
        await expect(person.page.locator("h1 .state")).to_have_text("ready", timeout=SLOW)


async def test_a_terminal_takes_keys_sizes_and_ctrl_c(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await show(page, box, "terminal")
        rows = page.locator(".xterm-rows")
        await expect(rows).to_contain_text("$", timeout=SLOW)
        await typed(page, 'stty size > wide; bash -c \'trap "echo inter"rupted INT; echo wai""ting; read line\'')
        await expect(rows).to_contain_text("waiting", timeout=SLOW)
        await page.keyboard.press("Control+c")
        await expect(rows).to_contain_text("interrupted", timeout=SLOW)
        await page.keyboard.press("Enter")
        await page.set_viewport_size({"width": 700, "height": 900})
        await typed(page, "stty size > narrow; echo $((6*7))")
        await expect(rows).to_contain_text("42", timeout=SLOW)
        wide, narrow = [int((await box.fs.read(name)).split()[1]) for name in ("wide", "narrow")]
        assert wide > narrow > 20
        await typed(page, "exit 3")
        await expect(page.get_by_text("the shell has ended with exit code 3")).to_be_visible(timeout=SLOW)


async def test_a_shell_ends_with_its_page(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await show(person.page, box, "terminal")
        await expect(person.page.locator(".xterm-rows")).to_contain_text("$", timeout=SLOW)
        assert [process.running for process in await box.processes.list()] == [True]
        await show(person.page, box, "timeline")
        await no_shell_runs(box)


async def test_files_are_uploaded_shown_and_downloaded(world: ConsoleWorld, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "large.bin").write_bytes(content)
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await box.fs.write("data/notes.txt", "a note\n")
        await show(page, box, "files")
        await page.get_by_role("button", name="data/").click()
        await page.get_by_role("button", name="notes.txt", exact=True).click()
        await expect(page.locator(".content pre")).to_have_text("a note\n")
        await page.locator("input[type=file]").set_input_files(tmp_path / "large.bin")
        await expect(page.get_by_role("status").last).to_have_text("large.bin was uploaded.", timeout=SLOW)
        assert await box.fs.read("data/large.bin", "bytes") == content
        async with page.expect_download() as waiting:
            await page.get_by_role("row", name="large.bin").get_by_role("link", name="Download").click()
        path = await (await waiting.value).path()
        assert await asyncio.to_thread(path.read_bytes) == content
        await page.get_by_role("button", name="Delete large.bin").click()
        await page.get_by_role("button", name="Delete", exact=True).click()
        await expect(page.get_by_role("row", name="large.bin")).to_have_count(0)
        assert not await box.fs.exists("data/large.bin")


async def test_a_cell_shows_text_tables_pictures_and_errors(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await show(page, box, "python")
        await run_code(page, "import pandas\nprint('said')\npandas.DataFrame({'a': [1, 22]})")
        await expect(page.locator(".output pre")).to_have_text("said\n", timeout=SLOW)
        await expect(page.frame_locator("iframe").get_by_role("cell", name="22")).to_be_visible(timeout=SLOW)
        await run_code(page, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
        await expect(page.locator(".output img")).to_be_visible(timeout=SLOW)
        assert await page.locator(".output img").evaluate("image => image.naturalWidth") > 100
        await run_code(page, "1 / 0")
        await expect(page.get_by_text("ZeroDivisionError").first).to_be_visible(timeout=SLOW)
        await run_code(page, "while True: pass")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("failed: stopped")).to_be_visible(timeout=SLOW)


async def test_a_hostile_sandbox_takes_no_page(world: ConsoleWorld) -> None:
    async with box_of(world, shown="x" * 60) as box, world.person(world.console.link(None)) as person:
        page = person.page
        name = HOSTILE.replace("/", "-")
        await box.fs.write(name, HOSTILE)
        await show(page, box, "files")
        await page.get_by_role("button", name=name, exact=True).click()
        await expect(page.locator(".content pre")).to_have_text(HOSTILE)
        await show(page, box, "terminal")
        await expect(page.locator(".xterm-rows")).to_contain_text("$", timeout=SLOW)
        await typed(page, r"printf '\033]0;taken\007\033]52;c;dGFrZW4=\007\033[?1049h'; cat ./*")
        await expect(page.locator(".xterm-rows")).to_contain_text("onerror", timeout=SLOW)
        await show(page, box, "python")
        await run_code(page, f"from IPython.display import HTML, SVG\nprint({HOSTILE!r})\nHTML({HOSTILE!r})")
        await expect(page.locator(".output pre").first).to_have_text(f"{HOSTILE}\n", timeout=SLOW)
        await expect(page.locator("iframe")).to_have_attribute("sandbox", "")
        await run_code(page, "print('x' * 10_000_000)")
        await expect(page.get_by_text("the rest is left out")).to_be_visible(timeout=SLOW)
        assert box.sandbox_id in await page.title()
        assert await page.evaluate("document.cookie") == ""
        assert person.complaints == []
        origin = urlsplit(page.url).netloc
        assert {urlsplit(url).netloc for url in person.requests if url.startswith("http")} == {origin}


async def test_a_link_opens_one_session_and_a_session_that_ended_says_so(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh:
        token = await mesh.tokens.create("leaver")
        link = world.console.link(token.secret)
        async with world.person(link) as person:
            page = person.page
            await expect(page.get_by_text("leaver")).to_be_visible(timeout=SLOW)
            assert "code" not in page.url
            await page.reload()
            await expect(page.get_by_text("leaver")).to_be_visible(timeout=SLOW)
            async with world.person(link) as other:
                await expect(other.page.get_by_role("alert")).to_contain_text("was used or has expired")
            await mesh.tokens.revoke(token.token)
            await expect(page.get_by_role("heading", name="The console is closed")).to_be_visible(timeout=SLOW)
            await page.reload()
            await expect(page.get_by_role("alert")).to_contain_text("this session has ended")


async def test_signing_out_ends_terminals_in_other_tabs(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await show(person.page, box, "terminal")
        await expect(person.page.locator(".xterm-rows")).to_contain_text("$", timeout=SLOW)
        other = await person.page.context.new_page()
        await other.goto(person.page.url.partition("#")[0])
        await other.get_by_role("button", name="Sign out").click()
        await expect(person.page.get_by_role("heading", name="The console is closed")).to_be_visible(timeout=SLOW)
        await no_shell_runs(box)


async def test_a_token_that_only_looks_is_offered_nothing_else(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh, box_of(world) as box:
        token = await mesh.tokens.create("looker", scope="read-only")
        async with world.person(world.console.link(token.secret)) as person:
            page = person.page
            await expect(page.get_by_text("read-only", exact=True).first).to_be_visible(timeout=SLOW)
            await show(page, box, "terminal")
            await expect(page.get_by_text("Your token is read-only")).to_be_visible()
            await expect(page.get_by_role("button", name="Kill")).to_have_count(0)
            path = f"api/sandboxes/{box.sandbox_id}/kill"
            sent = "path => fetch(path, {method: 'POST', body: '{}'}).then(found => found.status)"
            assert await page.evaluate(sent, path) == 403
        assert await box.get_status() == "ready"


async def test_a_user_sees_only_their_own(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh, box_of(world) as box:
        token = await mesh.tokens.create("stranger")
        async with world.person(world.console.link(token.secret)) as person:
            await expect(person.page.get_by_role("heading", name="No sandbox is in use")).to_be_visible(timeout=SLOW)
            await show(person.page, box, "timeline")
            await expect(person.page.get_by_role("alert")).to_be_visible(timeout=SLOW)


@pytest.mark.parametrize("dark", [False, True])
async def test_every_view_fits_a_phone(world: ConsoleWorld, dark: bool) -> None:
    async with box_of(world, job="x" * 60) as box, world.person(world.console.link(None), PHONE, dark=dark) as person:
        page = person.page
        await expect(page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
        for place in ("", *(f"sandbox/{box.sandbox_id}/{tab}" for tab in ("timeline", "files", "python")), "mesh"):
            await page.evaluate("hash => { location.hash = hash }", f"#/{place}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
