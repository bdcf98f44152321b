"""What a person writes into the dialog of one page goes to that dialog only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.browser.test_browser_view import framed, frames
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, PERSON, viewing

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

OPENED = "file:///workspace/asks.html"
PAGE = """<title>Asks</title><p id=out></p>
<button onclick="once()">Once</button><button onclick="twice()">Twice</button>
<script>
const once = () => { out.textContent = `<${prompt('First?', 'one')}>`; };
const twice = () => { out.textContent = `<${prompt('Second?', 'two')}> then <${prompt('Third?', 'three')}>`; };
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as opened:
        await opened.fs.write("asks.html", PAGE.encode())
        yield opened


def ref_of(text: str, name: str) -> str:
    """Return the reference of a button in a snapshot."""
    line = next(line for line in text.splitlines() if f'"{name}"' in line)
    return line.partition("[ref=")[2].partition("]")[0]


async def says(box: BrowserSandboxAsync, text: str) -> None:
    """Wait until the page has a text."""
    async with asyncio.timeout(60):
        while text not in (await box.browser_snapshot()).text:
            pass


async def test_a_dialog_that_was_answered_is_not_shown_while_pictures_are_late(box: BrowserSandboxAsync) -> None:
    ref = ref_of((await box.browser_navigate(OPENED)).text, "Once")
    async with viewing(await box.browser.url(), slow_pictures=True) as person:
        await person.do("await", AGENT)
        for answer in ("Ada", "Linus"):
            assert "offers the text 'one'" in (await box.browser_click("Once", ref)).text
            await person.do("says", "First?")
            assert await person.do("answer") == "one"
            await person.do("press", "Take over")
            await person.do("await", PERSON)
            await person.do("dialog", answer)
            assert await person.do("visible", "#dialog") is False
            await says(box, f"<{answer}>")
            await person.do("press", "Hand back")
            await person.do("await", AGENT)


async def test_an_answer_that_comes_late_answers_no_other_dialog(box: BrowserSandboxAsync) -> None:
    ref = ref_of((await box.browser_navigate(OPENED)).text, "Twice")
    viewer, url = "e" * 32, await box.browser.url()
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}websocket?viewer={viewer}") as socket,
    ):
        await box.browser_click("Twice", ref)
        async with session.post(f"{url}control?viewer={viewer}", data="take") as answer:
            assert (await answer.json())["holder"] == "you"
        answered: list[str] = []
        written: dict[str, object] = {}
        async for frame in frames(socket):
            dialog = json.loads(frame[1:])["dialog"] if frame[:1] == b"s" else None
            if dialog is None:
                continue
            if not answered:
                written = {"t": "dialog", "accept": True, "text": "for the second", "number": dialog["number"]}
            # Again, as by a page that was not told yet of the dialog that is open by then.
            await socket.send_bytes(framed("i", **written))
            answered.append(dialog["message"])
            if len(answered) == 2:
                await socket.send_bytes(framed("i", **written | {"number": dialog["number"], "text": "for the third"}))
                break
        assert answered == ["Second?", "Third?"]
        await says(box, "<for the second> then <for the third>")
        async with session.post(f"{url}control?viewer={viewer}", data="hand_back") as answer:
            assert (await answer.json())["holder"] == "agent"


async def test_what_was_written_for_one_tab_is_not_offered_to_another(box: BrowserSandboxAsync) -> None:
    # The first dialog of each of two tabs.
    ref = ref_of((await box.browser_tab_new(OPENED)).text, "Once")
    other = ref_of((await box.browser_tab_new(OPENED)).text, "Twice")
    async with viewing(await box.browser.url()) as person:
        await person.do("await", AGENT)
        await box.browser_click("Twice", other)
        await box.browser_tab_select(2)
        await box.browser_click("Once", ref)
        await person.do("says", "First?")
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("draft", "a secret")
        await person.do("choose", "2")
        await person.do("says", "Second?")
        assert await person.do("answer") == "two"


async def test_a_dialog_that_is_open_before_somebody_watches_is_shown_and_answered(box: BrowserSandboxAsync) -> None:
    ref = ref_of((await box.browser_tab_new(OPENED)).text, "Once")
    assert "offers the text 'one'" in (await box.browser_click("Once", ref)).text
    async with viewing(await box.browser.url()) as person:
        await person.do("says", "First?")
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("dialog", "Ada")
        await says(box, "<Ada>")
