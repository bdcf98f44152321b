"""The page that shows a browser, as people use it: by a finger, in the dark, by the keyboard, and after the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, PERSON, PHONE, viewing

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

WIDTH, HEIGHT = 1280, 720
LEAST_CONTRAST = 4.5
FINGER = 44
OPENED = "file:///workspace/page.html"
PAGE = """<title>Page</title><button onclick="out.textContent = prompt('Your name?', 'Grace') + '!'">Ask</button>
<input aria-label=Field autofocus><p id=out></p><div style="height: 4000px">Tall</div>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as opened:
        await opened.fs.write("page.html", PAGE.encode())
        yield opened


async def evaluated(box: BrowserSandboxAsync, function: str) -> object:
    """Return a function's result in the page, once the agent may act."""
    async with asyncio.timeout(60):
        while (found := await box.browser_evaluate(function)).is_error:
            pass
    return json.loads(found.text)


async def test_a_finger_scrolls_and_buttons_can_be_hit(box: BrowserSandboxAsync) -> None:
    await box.browser_navigate(OPENED)
    async with viewing(await box.browser.url(), **PHONE) as person:
        await person.sees_a_picture(WIDTH, HEIGHT)
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        small = [each for each in await person.do("bar") if each[3] in ("BUTTON", "SELECT") and each[2] < FINGER]
        assert not small
        await person.do("swipe", "0.5 0.8 0.5 0.2")
        await person.do("press", "Hand back")
        await person.do("await", AGENT)
        # As far as the finger went: six tenths of the picture.
        assert abs(float(str(await evaluated(box, "() => scrollY"))) - 0.6 * HEIGHT) < 0.1 * HEIGHT


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_contrast_whoever_has_control(box: BrowserSandboxAsync, scheme: str) -> None:
    await box.browser_navigate(OPENED)
    async with viewing(await box.browser.url(), color_scheme=scheme) as person:
        await person.do("await", AGENT)
        faint = [each for each in await person.do("bar") if each[1] < LEAST_CONTRAST]
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        faint += [each for each in await person.do("bar") if each[1] < LEAST_CONTRAST]
        assert not faint
        assert await person.do("background") == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 22, 24)")


async def test_the_keyboard_takes_over_types_and_hands_back(box: BrowserSandboxAsync) -> None:
    await box.browser_navigate(OPENED)
    async with viewing(await box.browser.url()) as person:
        await person.do("await", AGENT)
        await person.do("chord", "Tab")
        assert await person.do("focused") == "take"
        await person.do("chord", "Enter")
        await person.do("await", PERSON)
        await person.do("keys", "by keys")
        await person.do("chord", "Control+Alt+Enter")
        assert await person.do("focused") == "hand-back"
        await person.do("chord", "Enter")
        await person.do("await", AGENT)
        assert await person.do("focused") == "take"
        assert "by keys" in (await box.browser_snapshot()).text
        assert not (await box.browser_press_key("z")).is_error
        # No modifier stayed down.
        assert await evaluated(box, "() => document.querySelector('input').value") == "by keysz"


async def test_a_prompt_offers_its_text_each_time(box: BrowserSandboxAsync) -> None:
    shown = (await box.browser_navigate(OPENED)).text
    ref = next(line for line in shown.splitlines() if '"Ask"' in line).partition("[ref=")[2].partition("]")[0]
    async with viewing(await box.browser.url()) as person:
        await person.sees_a_picture(WIDTH, HEIGHT)
        for answer in ("Ada", "Linus"):
            assert "offers the text 'Grace'" in (await box.browser_click("Ask", ref)).text
            await person.do("says", "Your name?")
            assert await person.do("answer") == "Grace"
            await person.do("press", "Take over")
            await person.do("await", PERSON)
            await person.do("dialog", answer)
            async with asyncio.timeout(60):
                while f"{answer}!" not in (await box.browser_snapshot()).text:
                    pass
            await person.do("press", "Hand back")
            await person.do("await", AGENT)
    assert not (await box.browser_click("Ask", ref)).is_error
    assert "Grace!" in (await box.browser_handle_dialog(accept=True)).text


async def test_the_view_of_a_released_sandbox_ends_and_says_so(mesh: Mesh) -> None:
    async with (
        BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as short,
        viewing(await short.browser.url()) as person,
    ):
        await person.do("await", AGENT)
        await short.close()
        await person.do("await", "The sandbox has ended.")
        assert await person.do("shown", "Take over") is False
