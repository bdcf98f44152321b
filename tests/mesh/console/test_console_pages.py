"""The console in a real browser: what a person sees, does, and is protected from."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import expect

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from sandmeshd.facades.console.app import open_console
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.mesh.sweep import remove
from tests.mesh.console.accessibility import SERIOUS, install_axe
from tests.mesh.console.person import PHONE, ConsoleWorld, no_shell_runs, open_world, run_code, show, typed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SLOW = 30_000
HOSTILE = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
ELSEWHERE = """<meta http-equiv=refresh content="0;url=http://elsewhere.example/"><base href="http://elsewhere.example/">
<iframe src=frame></iframe><img src=picture><link rel=stylesheet href=sheet><style>p { background: url(paint) }</style>
<p>Shown<form action=form><button>Send</button></form><object data=object></object><video src=video></video>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[ConsoleWorld]:
    """Run one mesh, console and browser for all tests."""
    async with open_world() as running:
        yield running


def box_of(world: ConsoleWorld, **labels: str) -> BaseSandboxAsync:
    return BaseSandboxAsync(base_url=world.address, labels=labels)


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
        assert [one.running for one in await box.processes.list()] == [True]
        await show(person.page, box, "timeline")
        await no_shell_runs(box)


async def test_files_are_uploaded_shown_and_downloaded(world: ConsoleWorld, tmp_path: Path) -> None:
    content = bytes(range(256)) * 400_000
    (tmp_path / "large.bin").write_bytes(content)
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        page = person.page
        await box.fs.write("data/notes.txt", "a note\n")
        await show(page, box, "files")
        await page.get_by_role("button", name="data/").click()
        await page.get_by_role("button", name="notes.txt", exact=True).click()
        await expect(page.locator(".content pre")).to_have_text("a note\n")
        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("Content").fill("a note\nand more\n")
        await expect(page.locator(".diff .added")).to_have_text("+ and more\n")
        await box.fs.write("data/notes.txt", "theirs\n")
        await page.keyboard.press("Control+s")
        await expect(page.get_by_text("changed meanwhile")).to_be_visible()
        assert await box.fs.read("data/notes.txt") == "theirs\n"
        await page.get_by_role("button", name="Save mine over it").click()
        await expect(page.get_by_text("Saved.", exact=True)).to_be_visible()
        assert await box.fs.read("data/notes.txt") == "a note\nand more\n"
        await page.locator("input[type=file]").set_input_files(tmp_path / "large.bin")
        await expect(page.get_by_text("large.bin was uploaded.")).to_be_visible(timeout=SLOW)
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
        await run_code(page, f"HTML({ELSEWHERE!r})")
        await expect(page.locator("iframe")).to_have_count(2, timeout=SLOW)
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


async def test_a_shared_link_shows_and_uses_nothing(world: ConsoleWorld) -> None:
    async with box_of(world) as box, world.person(world.console.link(None)) as person:
        await person.page.get_by_role("button", name="Share").click()
        link = person.page.get_by_label("The link")
        await expect(link).to_contain_text("#code=")
        place = f"sandbox/{box.sandbox_id}/ports"
        async with world.person(await link.inner_text(), place=place) as other:
            page = other.page
            await expect(page.get_by_text("This session is read-only")).to_be_visible(timeout=SLOW)
            await expect(page.get_by_role("button", name="Kill")).to_have_count(0)
            sent = "([method, path]) => fetch(`api/${path}`, {method, body: '{}'}).then(found => found.status)"
            of = f"sandboxes/{box.sandbox_id}"
            used = (f"{of}/kill", f"{of}/snapshot", f"{of}/network/allow", f"{of}/ports", f"{of}/cell", "tokens")
            assert {await page.evaluate(sent, ["POST", path]) for path in used} == {403}
        assert await box.get_status() == "ready"


async def test_who_administers_sees_and_changes_access(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh, world.person(world.console.link(None), place="access") as person:
        page = person.page
        await page.get_by_text("New token").click()
        await page.get_by_label("Name").first.fill("guest")
        await page.get_by_role("button", name="Create").click()
        secret = page.get_by_role("status").locator("code")
        await expect(secret).to_be_visible(timeout=SLOW)
        async with MeshAsync(world.address, await secret.inner_text()) as guest:
            assert (await guest.whoami()).user_id == "guest"
        await page.get_by_text("Set a limit").click()
        limit = page.locator("form", has_text="Limit")
        await limit.get_by_label("Name").fill("lab")
        await limit.get_by_label("Value").fill("7")
        await limit.get_by_role("button", name="Set").click()
        await expect(page.get_by_role("row", name="project lab")).to_contain_text("0 of 7", timeout=SLOW)
        assert [one.limits for one in await mesh.quotas.list() if one.project == "lab"] == [{"sandboxes": 7}]
        await expect(page.get_by_role("row", name="TokenService.CreateToken").first).to_contain_text("name=guest")
        await page.get_by_role("button", name="Revoke guest").click()
        await page.get_by_role("button", name="Revoke it").click()
        await expect(page.get_by_role("row", name="guest user")).to_have_count(0)
        assert "guest" not in {one.name for one in await mesh.tokens.list()}
        assert person.complaints == []


async def test_network_ports_and_forks_of_a_sandbox(world: ConsoleWorld) -> None:
    box = BaseSandboxAsync(base_url=world.address, network=["example.org"])
    async with box, world.person(world.console.link(None)) as person:
        page = person.page
        await show(page, box, "timeline")
        await box.run_shell_command("curl -s http://blocked.example; curl -s https://other.example:8443")
        await page.get_by_role("button", name="Allow other.example:8443").click(timeout=SLOW)
        await expect(page.get_by_text("Allowed.")).to_be_visible(timeout=SLOW)
        assert set((await box.network.show()).grant.hosts) == {"example.org", "other.example:8443"}
        await show(page, box, "network")
        await page.get_by_role("button", name="Deny other.example:8443").click(timeout=SLOW)
        await expect(page.locator(".hosts li")).to_have_text(["example.orgDeny"], timeout=SLOW)
        await expect(page.get_by_role("row", name="blocked.example")).to_contain_text("not among the hosts")
        await show(page, box, "ports")
        await page.get_by_role("button", name="Expose").click()
        url = await page.get_by_role("row", name="port 8000").get_by_role("link").get_attribute("href", timeout=SLOW)
        assert [one.url for one in await box.list_exposed()] == [url]
        await page.get_by_role("button", name="Revoke port 8000").click()
        await expect(page.get_by_text("Nothing is exposed")).to_be_visible(timeout=SLOW)
        await page.get_by_role("button", name="Desktop").click()
        await expect(page.get_by_role("alert")).to_be_visible(timeout=SLOW)
        (fork,) = await box.fork(1)
        async with fork:
            await show(page, fork, "forks")
            await expect(page.locator(".tree > li > a")).to_have_text(box.sandbox_id, timeout=SLOW)
            await expect(page.locator(".tree li li strong")).to_have_text(fork.sandbox_id or "")
            await page.get_by_role("button", name="Take a snapshot").click()
            await page.get_by_role("button", name="Delete snap_").click(timeout=SLOW)
            await page.get_by_role("button", name="Delete it").click()
            await expect(page.get_by_text("There are no snapshots of this sandbox")).to_be_visible(timeout=SLOW)
        assert person.complaints == []


async def test_a_restart_of_the_mesh_is_told_and_overcome(world: ConsoleWorld) -> None:
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    try:
        async with AsyncExitStack() as first:
            address = (await first.enter_async_context(open_mesh(settings, lambda message, fraction: None))).addresses[
                0
            ]
            async with open_console(address, "127.0.0.1:0") as console, world.person(console.link(None)) as person:
                await expect(person.page.get_by_role("heading", name="No sandbox is in use")).to_be_visible(
                    timeout=SLOW
                )
                await first.aclose()
                await expect(person.page.get_by_role("status").first).to_contain_text("Trying again", timeout=SLOW)
                async with (
                    open_mesh(settings, lambda message, fraction: None),
                    BaseSandboxAsync(base_url=address) as box,
                ):
                    await expect(person.page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
                    await expect(person.page.get_by_text("Trying again")).to_be_hidden()
    finally:
        remove(settings.paths)


async def test_a_token_that_only_looks_is_offered_nothing_else(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh, box_of(world) as box:
        token = await mesh.tokens.create("looker", scope="read-only")
        async with world.person(world.console.link(token.secret)) as person:
            page = person.page
            await expect(page.get_by_text("read-only", exact=True).first).to_be_visible(timeout=SLOW)
            await show(page, box, "terminal")
            await expect(page.get_by_text("This session is read-only")).to_be_visible()
            await expect(page.get_by_role("button", name="Kill")).to_have_count(0)
            path = f"api/sandboxes/{box.sandbox_id}/kill"
            sent = "path => fetch(path, {method: 'POST', body: '{}'}).then(found => found.status)"
            assert await page.evaluate(sent, path) == 403
        assert await box.get_status() == "ready"


async def test_a_user_sees_only_their_own(world: ConsoleWorld) -> None:
    async with MeshAsync(world.address) as mesh, box_of(world) as box:
        token = await mesh.tokens.create("stranger")
        place = f"sandbox/{box.sandbox_id}/timeline"
        async with world.person(world.console.link(token.secret), place=place) as person:
            await expect(person.page.get_by_role("alert")).to_be_visible(timeout=SLOW)
            await expect(person.page.get_by_role("link", name="Access")).to_have_count(0)
            await person.page.evaluate("location.hash = '#/access'")
            await expect(person.page.get_by_text("are shown to administrators")).to_be_visible(timeout=SLOW)


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the program that finds what keeps people out."""
    return install_axe(tmp_path_factory.mktemp("axe"))


@pytest.mark.needs("node")
@pytest.mark.parametrize("dark", [False, True])
async def test_every_view_fits_a_phone_and_everybody(world: ConsoleWorld, axe: str, dark: bool) -> None:
    async with box_of(world, job="x" * 60) as box, world.person(world.console.link(None), PHONE, dark=dark) as person:
        page = person.page
        await expect(page.get_by_role("link", name=box.sandbox_id)).to_be_visible(timeout=SLOW)
        await page.evaluate(axe)
        tabs = ("timeline", "usage", "files", "python", "terminal", "network", "ports", "forks", "logs")
        for place in (
            "",
            "events",
            "snapshots",
            "mesh",
            "access",
            *(f"sandbox/{box.sandbox_id}/{tab}" for tab in tabs),
        ):
            await page.evaluate("hash => { location.hash = hash }", f"#/{place}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await expect(page.locator(".loading")).to_have_count(0)
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0], place
            assert await page.evaluate(SERIOUS, dark) == [], place
