"""A person takes over while a call of the agent is under way: real Chromium on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.people import interrupted, quiet, watching

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

OPENED = "file:///workspace/late.html"
PAGE = """<title>Late</title><button id=late disabled aria-label=Late>Late</button>
<button aria-label=Covered>Covered</button><div id=cover style="position:fixed;inset:0;z-index:9"></div>
<input aria-label=Field><p id=out>nothing</p>
<script>
document.querySelectorAll('button').forEach(each => each.onclick = () => { out.textContent = 'clicked' });
window.uncover = () => cover.remove();
</script>"""
SLOW = """import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(4)
        self.send_response(200); self.send_header("Content-Type", "text/html"); self.end_headers()
        self.wfile.write(b"<title>Slow</title>it came")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8001), Handler).serve_forever()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as opened:
        await opened.fs.write("late.html", PAGE.encode())
        await opened.fs.write("slow.py", SLOW.encode())
        server = await opened.processes.start("python3 slow.py")
        await server.wait_for_port(8001)
        yield opened


def ref_of(text: str, name: str) -> str:
    """Return the reference of what has a name in a snapshot."""
    line = next(line for line in text.splitlines() if f'"{name}"' in line)
    return line.partition("[ref=")[2].partition("]")[0]


async def test_a_click_that_waits_is_not_made_after_a_person_took_over(box: BrowserSandboxAsync) -> None:
    shown = (await box.browser_navigate(OPENED)).text
    ref = ref_of(shown, "Covered")
    async with watching(await box.browser.url()) as person:
        await quiet(person)
        text = await interrupted(person, box.browser_click("Covered", ref))
        assert "A person took over the browser during this call, which was ended there" in text
        await person.control("hand_back")
        await box.browser_evaluate("() => uncover()")
        # What was left waiting would be made now.
        await box.browser_wait_for(time=3)
        assert "nothing" in (await box.browser_snapshot()).text
        assert "clicked" in (await box.browser_click("Covered", ref)).text


async def test_keys_end_and_a_page_that_loads_stops_when_a_person_takes_over(box: BrowserSandboxAsync) -> None:
    shown = (await box.browser_navigate(OPENED)).text
    await box.browser_evaluate("() => uncover()")
    ref = ref_of(shown, "Field")
    async with watching(await box.browser.url()) as person:
        await quiet(person)
        await interrupted(person, box.browser_type("Field", ref, "0123456789" * 2000, slowly=True))
        typed = await value(box)
        await asyncio.sleep(1)  # what goes on would have typed more
        assert await value(box) == typed
        await person.control("hand_back")
        await quiet(person)
        await interrupted(person, box.browser_navigate("http://localhost:8001"))
        await box.browser_wait_for(time=5)
        await person.control("hand_back")
        assert "late.html" in (await box.browser_snapshot()).text


async def value(box: BrowserSandboxAsync) -> int:
    """Return how much the field has, by what works while a person has the browser."""
    text = (await box.browser_snapshot()).text
    line = next(line for line in text.splitlines() if '"Field"' in line)
    return len(line.partition("]: ")[2].rpartition("]: ")[2])


async def test_the_agent_acts_for_as_long_as_its_call_lasts(box: BrowserSandboxAsync) -> None:
    shown = (await box.browser_navigate(OPENED)).text
    async with watching(await box.browser.url()) as person:
        await quiet(person)
        click = asyncio.create_task(box.browser_click("Covered", ref_of(shown, "Covered")))
        async with asyncio.timeout(60):
            while not (await person.control("show"))["acting"]:
                pass
        seen: list[bool] = []
        while not click.done():
            state = await person.control("show")
            if not click.done():
                seen.append(bool(state["acting"]))
            await asyncio.sleep(0.2)
        assert all(seen)
        assert len(seen) > 10
        assert "intercepts" in click.result().text
