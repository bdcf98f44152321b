"""People who watch a sandbox's browser, take it over and hand it back: real Chromium on the page of the gateway."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, BrowserSandbox, BrowserSandboxAsync
from sandmesh.errors import CapabilityMissing
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, OTHER, PERSON, viewing

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

SITE = "http://localhost:8000"
WIDTH, HEIGHT = 1280, 720
PAGES = Path(__file__).with_name("browser_pages.py")
PLACE = """() => {
  const box = document.querySelector('%s').getBoundingClientRect();
  return [(box.x + box.width / 2) / innerWidth, (box.y + box.height / 2) / innerHeight];
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests, with the server of pages."""
    async with BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as opened:
        await opened.fs.write("pages.py", PAGES.read_bytes())
        server = await opened.processes.start("python3 pages.py 8000")
        await server.wait_for_port(8000)
        yield opened


async def place(box: BrowserSandboxAsync, selector: str) -> str:
    """Return where an element is on the page, as parts of its width and height."""
    found = json.loads((await box.browser_evaluate(PLACE % selector)).text)
    return f"{found[0]} {found[1]}"


async def holds(box: BrowserSandboxAsync, text: str) -> None:
    """Wait until the page's snapshot has a text."""
    async with asyncio.timeout(60):
        while text not in (await box.browser_snapshot()).text:
            pass


async def test_a_person_takes_over_fills_a_form_and_hands_back(box: BrowserSandboxAsync) -> None:
    assert not (await box.browser_navigate(SITE)).is_error
    name, order = await place(box, "[name=name]"), await place(box, "form button")
    url = await box.browser.url(ttl=600)
    async with viewing(url) as person, viewing(url) as other:
        for each in (person, other):
            await each.do("await", AGENT)
            await each.sees_a_picture(WIDTH, HEIGHT)
        # Without control nothing arrives.
        await other.do("point", name)
        await other.do("keys", "refused")
        await other.do("paste", "refused")

        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await other.do("await", OTHER)
        held = await box.browser_navigate(f"{SITE}/second")
        assert held.is_error
        assert "taken over" in held.text
        assert not (await box.browser_take_screenshot()).is_error
        await person.do("point", name)
        await person.do("keys", "Ada")
        await person.do("paste", ", Grüße 你好")
        await holds(box, "Ada, Grüße 你好")
        await person.do("point", order)
        await holds(box, "name=Ada%2C+Gr%C3%BC%C3%9Fe")

        await other.do("press", "Take over")
        await person.do("await", OTHER)
        await other.do("press", "Hand back")
        await person.do("await", AGENT)
        assert not (await box.browser_navigate(f"{SITE}/second")).is_error
        await person.do("press", "Take over")
        await person.do("await", PERSON)
    # Whoever leaves hands back.
    async with asyncio.timeout(60):
        while (await box.browser_navigate(SITE)).is_error:
            pass
    assert "refused" not in (await box.browser_snapshot()).text


async def test_a_person_answers_a_dialog_and_chooses_a_tab(box: BrowserSandboxAsync) -> None:
    assert not (await box.browser_navigate(f"{SITE}/dialog")).is_error
    button = await place(box, "button")
    async with viewing(await box.browser.url()) as person:
        await person.sees_a_picture(WIDTH, HEIGHT)
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("point", button)
        await person.do("says", "Your name?")
        await person.do("dialog", "Grace")
        await holds(box, "Grace")
        await person.do("press", "Hand back")
        await person.do("await", AGENT)
        assert not (await box.browser_tab_new(f"{SITE}/second")).is_error
        async with asyncio.timeout(60):
            while await person.do("tabs") != [f"{SITE}/dialog", f"{SITE}/second"]:
                pass
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("choose", "0")
        await holds(box, "Grace")
    async with asyncio.timeout(60):
        while (await box.browser_tab_close(2)).is_error:
            pass


async def test_a_view_shows_the_browser_that_was_started_anew(box: BrowserSandboxAsync) -> None:
    assert not (await box.browser_navigate(SITE)).is_error
    async with viewing(await box.browser.url()) as person:
        await person.sees_a_picture(WIDTH, HEIGHT)
        await box.run_shell_command("pkill -KILL -f /chromium/chromium")
        async with asyncio.timeout(60):
            while (await box.browser_navigate(f"{SITE}/second")).is_error:
                pass
        async with asyncio.timeout(60):
            while await person.do("tabs") != [f"{SITE}/second"]:
                pass
        assert not (await box.browser_resize(800, 600)).is_error
        await person.sees_a_picture(800, 600)
        assert not (await box.browser_resize(WIDTH, HEIGHT)).is_error


async def frames(socket: aiohttp.ClientWebSocketResponse) -> AsyncGenerator[bytes]:
    """Yield what the browser sends, message by message."""
    received = b""
    while True:
        while len(received) >= 4 and len(received) >= 4 + struct.unpack_from("!I", received)[0]:
            end = 4 + struct.unpack_from("!I", received)[0]
            yield received[4:end]
            received = received[end:]
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            return
        received += message.data


def framed(letter: str, **values: Any) -> bytes:
    """Return a message of a viewer."""
    body = letter.encode() + (json.dumps(values).encode() if values else b"")
    return struct.pack("!I", len(body)) + body


async def test_input_by_a_link_that_only_shows_is_dropped_by_the_agent(box: BrowserSandboxAsync) -> None:
    """A viewer that is no page of ours speaks the protocol itself."""
    assert not (await box.browser_navigate(SITE)).is_error
    second = await place(box, "a")
    x, y = (float(part) for part in second.split())
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        for readonly in (True, False):
            url = await box.browser.url(readonly=readonly)
            async with session.post(f"{url}control?viewer={'a' * 32}", data="take") as answer:
                assert answer.status == (403 if readonly else 200)
            async with session.ws_connect(f"{url}websocket?viewer={'b' * 32}") as socket:
                seen: set[bytes] = set()
                async for frame in frames(socket):
                    seen.add(frame[:1])
                    if seen == {b"s", b"f"}:
                        break
                for kind in ("down", "up"):
                    await socket.send_bytes(framed("i", t="mouse", k=kind, x=x, y=y, b=0, n=1, held=1))
                await socket.send_bytes(framed("i", t="go", to="back"))
                await socket.send_bytes(framed("a"))
                # What is no message ends the connection, after all that came before.
                await socket.send_bytes(framed("x"))
                async for _ in frames(socket):
                    pass
            assert f"Page URL: {SITE}/\n" in (await box.browser_snapshot()).text


async def test_bad_input_of_a_person_in_control_changes_nothing(box: BrowserSandboxAsync) -> None:
    assert not (await box.browser_navigate(f"{SITE}/keys")).is_error
    viewer = "c" * 32
    url = await box.browser.url()
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{url}websocket?viewer={viewer}") as socket:
            async for frame in frames(socket):
                if frame[:1] == b"f":
                    break
            async with session.post(f"{url}control?viewer={viewer}", data="take") as answer:
                assert (await answer.json())["holder"] == "you"
            for bad in ({"t": "nothing"}, {"t": "mouse", "k": "jump"}, {"t": "go", "to": "file:///etc"}, {"t": "tab"}):
                await socket.send_bytes(framed("i", **bad))
            await socket.send_bytes(struct.pack("!I", 4) + b"i[[[")
            await socket.send_bytes(framed("i", t="tab", n=99))
            await socket.send_bytes(framed("i", t="key", k="down", key="q", code="KeyQ", vk=81))
            await holds(box, "q")
        async with session.get(f"{url}websocket?viewer=x") as refused:
            assert refused.status == 400


async def test_a_revoked_or_expired_link_shows_nothing(box: BrowserSandboxAsync) -> None:
    url = await box.browser.url()
    (exposed,) = [each for each in await box.list_exposed() if each.url == url]
    assert exposed.kind == "browser"
    short = await box.browser.url(readonly=True, ttl=1)
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert (answer.status, answer.headers["Referrer-Policy"]) == (200, "no-referrer")
        async with session.ws_connect(f"{url}websocket?viewer={'d' * 32}") as socket:
            await exposed.revoke()
            async for _ in frames(socket):
                pass
        for path in ("", f"websocket?viewer={'d' * 32}"):
            async with session.get(f"{url}{path}") as answer:
                assert answer.status == 404
        while True:
            async with session.get(short) as answer:
                if answer.status == 404:
                    assert "expired" in await answer.text() or "ended" in await answer.text()
                    break


async def test_the_property_is_the_url_that_there_is(mesh: Mesh, box: BrowserSandboxAsync) -> None:
    url = await box.browser_url
    assert url == await box.browser_url == await box.desktop_url
    (exposed,) = [each for each in await box.list_exposed() if each.url == url]
    await exposed.revoke()
    assert await box.browser_url != url

    def use() -> None:
        with BrowserSandbox(base_url=mesh.addresses[0]) as sync:
            assert sync.browser_url == sync.desktop_url
            assert sync.browser.url(readonly=True, ttl=60).startswith("http")

    await asyncio.to_thread(use)


async def test_nothing_runs_before_somebody_watches(mesh: Mesh) -> None:
    async with BrowserSandboxAsync(base_url=mesh.addresses[0]) as fresh:
        await fresh.browser.url()
        assert "chromium" not in (await fresh.run_shell_command("ps -eo args || cat /proc/*/cmdline")).text


async def test_a_sandbox_without_a_browser_says_so(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with (
        BaseSandboxAsync(base_url=address) as base,
        BrowserSandboxAsync(base_url=address, sandbox_id=base.sandbox_id) as other,
    ):
        with pytest.raises(CapabilityMissing, match="use the type browser"):
            await other.browser.url()
