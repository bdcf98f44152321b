"""Pages that want harm: they scan the loopback, take memory without end, open tabs without end, and ask for hosts."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
]

PAGE = "file:///workspace/page.html"
EATER = """<title>Eater</title><button onclick="
  const kept = []; for (;;) kept.push(new Uint8Array(1 << 24).fill(7))">Eat</button>"""
OPENER = "() => { for (let i = 0; i < 500; i++) window.open('about:blank#' + i) }"
SCAN = """async () => {
  const answers = {};
  for (const port of %s) {
    for (const address of ['127.0.0.1', '[::1]', 'localhost', '0.0.0.0'])
      try {
        const answer = await fetch(`http://${address}:${port}/json/version`, {signal: AbortSignal.timeout(2000)});
        answers[`${address}:${port}`] = await answer.text();
      } catch (error) {}
    await new Promise(done => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}/`);
      socket.onopen = () => { answers[`ws ${port}`] = 'open'; done() };
      socket.onerror = done;
    });
  }
  return answers;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open a sandbox that may reach one host."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120, network=["granted.example"]) as opened:
        yield opened


async def usable(box: BrowserSandboxAsync) -> None:
    """Open a page until it is there."""
    await box.fs.write("plain.html", "<title>Plain</title>")
    async with asyncio.timeout(120):
        while "- Page Title: Plain" not in (await box.browser_navigate("file:///workspace/plain.html")).text:
            pass


async def test_a_page_that_scans_the_loopback_reads_nothing_of_browser_or_agent(box: BrowserSandboxAsync) -> None:
    await box.fs.write("index.html", "<title>Scanner</title>")
    server = await box.processes.start("python3 -m http.server 8123 --bind 127.0.0.1")
    await server.wait_for_port(8123)
    assert not (await box.browser_navigate("http://localhost:8123/")).is_error
    tables = (await box.run_shell_command("cat /proc/net/tcp /proc/net/tcp6")).text
    rows = [line.split() for line in tables.splitlines()]
    listening = {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}
    # The scanner's own server, the debugging port and the proxy: the agent and the X server have none.
    assert len(listening - {8123, 3128}) == 1
    found = (await box.browser_evaluate(SCAN % json.dumps(sorted(listening - {8123})))).structured
    assert found == {"result": {}}


@pytest.mark.needs("root")
async def test_a_page_whose_name_moves_to_the_loopback_reaches_neither_browser_desktop_nor_agent() -> None:
    command = ("unshare", "--net", "--mount", sys.executable, "-m", "tests.mesh.browser.rebinding_world")
    world = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    written, failed = await world.communicate()
    assert world.returncode == 0, failed.decode()
    found = json.loads(written.splitlines()[-1])
    # The debugging port and the proxy; the X server, its viewers and the agent have none.
    assert found["ports"] == 2
    # Each of 3 origins requested 4 pages and a socket, at each of 5 addresses: all were refused by name.
    assert found["got"] == {"403": 60, "refused": 15}
    assert (found["reached"], found["agent"]) == (0, "alive")
    # It was not by an answer that somebody kept.
    assert found["queries"] >= 75


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_host_that_is_not_granted_is_named_with_the_reason(box: BrowserSandboxAsync, scheme: str) -> None:
    answer = (await box.browser_navigate(f"{scheme}://other.example/page")).text
    assert "other.example is not among the hosts that this sandbox may reach" in answer
    # What shows the failure is no hindrance to the next page.
    await box.fs.write("page.html", "<title>Page</title>")
    assert "- Page Title: Page" in (await box.browser_navigate(PAGE)).text


async def test_a_page_that_opens_500_tabs_gets_50(box: BrowserSandboxAsync) -> None:
    await usable(box)
    await box.browser_evaluate(OPENER)
    async with asyncio.timeout(120):
        while len(tabs := re.findall(r"^- \d+: ", (await box.browser_tab_list()).text, re.MULTILINE)) != 50:
            pass
    refused = await box.browser_tab_new()
    assert "There are 50 tabs, which is the most: close some by browser_tab_close" in refused.text
    assert len(tabs) == 50
    assert not (await box.browser_close()).is_error
    await usable(box)


@pytest.mark.needs("control groups")
async def test_a_page_that_takes_memory_without_end_dies_alone(mesh: Mesh) -> None:
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120, limits={"memory": 1 << 30}) as small:
        assert not (await small.run_ipython_cell("kept = 'still here'")).is_error
        await small.fs.write("page.html", EATER)
        button = re.search(r"ref=(\w+)", (await small.browser_navigate(PAGE)).text)
        assert button is not None
        eaten = await small.browser_click("Eat", button[1])
        assert eaten.is_error
        await usable(small)
        assert (await small.run_ipython_cell("print(kept)")).text.strip() == "still here"
