"""People who watch a sandbox's desktop, take it over and hand it back: real Chromium on the page of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import FilesystemSandboxAsync, GuiSandboxAsync
from sandmesh.errors import CapabilityMissing
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, OTHER, PERSON, viewing

pytestmark = [
    pytest.mark.needs("desktop"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox that has a desktop, with a terminal on it."""
    async with GuiSandboxAsync(base_url=mesh.addresses[0], timeout=60) as running:
        await running.desktop.launch("xterm", "-maximized")
        async with asyncio.timeout(60):
            while not [window for window in await running.desktop.windows() if "tint2" not in window.title]:
                pass
        yield running


async def typed(box: GuiSandboxAsync, name: str) -> str:
    """Wait for a file that a command in the terminal writes."""
    async with asyncio.timeout(60):
        while not (found := (await box.run_shell_command(f"cat {name} 2>/dev/null; true")).text):
            pass
    return found.strip()


async def test_a_person_takes_over_types_and_hands_back(box: GuiSandboxAsync) -> None:
    url = await box.desktop.url(ttl=600)
    async with viewing(url) as person, viewing(url) as other:
        for each in (person, other):
            await each.do("await", AGENT)
            await each.sees_a_picture(1024, 768)
        # Without control nothing arrives.
        await other.do("click")
        await other.do("type", "echo no > refused")
        assert not (await box.computer_use("left_click", [300, 300])).is_error

        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await other.do("await", OTHER)
        held = await box.computer_use("type", text="x")
        assert held.is_error
        assert "taken over" in held.text
        assert not (await box.computer_use("screenshot")).is_error
        await person.do("click")
        await person.do("type", "echo person > person")
        assert await typed(box, "person") == "person"

        await other.do("press", "Take over")
        await person.do("await", OTHER)
        await other.do("press", "Hand back")
        await person.do("await", AGENT)
        assert not (await box.computer_use("type", text="echo agent > agent\n")).is_error
        assert await typed(box, "agent") == "agent"
        await person.do("press", "Take over")
        await person.do("await", PERSON)
    # Whoever leaves hands back.
    async with asyncio.timeout(60):
        while (await box.computer_use("mouse_move", [5, 5])).is_error:
            pass
    assert (await box.run_shell_command("ls refused")).is_error


async def test_a_link_that_only_shows_takes_nothing_over(box: GuiSandboxAsync) -> None:
    url = await box.desktop.url(readonly=True)
    async with viewing(url) as person:
        await person.do("await", AGENT)
        await person.sees_a_picture(1024, 768)
        assert await person.do("shown", "Take over") is False
        await box.desktop.resize(1280, 800)
        await person.sees_a_picture(1280, 800)
        await box.desktop.resize(1024, 768)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}control?viewer={'a' * 32}", data="take") as refused:
            assert refused.status == 403
        async with session.post(f"{url}control?viewer={'a' * 32}", data="show") as shown:
            assert await shown.json() == {"holder": "agent", "acting": True, "readonly": True}


async def test_keys_that_come_by_a_link_that_only_shows_are_dropped_by_the_agent(box: GuiSandboxAsync) -> None:
    """A viewer that is no page of ours speaks the protocol itself."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        for readonly in (True, False):
            url = await box.desktop.url(readonly=readonly)
            async with session.ws_connect(f"{url}websocket?viewer={'b' * 32}") as socket:
                received = b""
                for said in (b"RFB 003.008\n", b"\x01", b"\x00"):
                    received += await socket.receive_bytes()
                    await socket.send_bytes(said)
                before = await box.desktop.info()
                # To a corner of the screen.
                await socket.send_bytes(b"\x05\x00" + b"\x00\x01" * 2)
                await socket.send_bytes(b"\x03\x00" + b"\x00\x00" * 2 + b"\x00\x10" * 2)
                # The picture of 16 x 16 points, 4 bytes each, comes after what the server made of the mouse.
                while len(received) < 1024:
                    received += await socket.receive_bytes()
                assert (await box.desktop.info()).cursor == before.cursor
                # What is no message ends the connection.
                await socket.send_bytes(b"\x77")
                while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass


async def test_the_property_is_the_url_that_there_is(mesh: Mesh, box: GuiSandboxAsync) -> None:
    url = await box.desktop_url
    assert await box.desktop_url == url
    (exposed,) = [each for each in await box.list_exposed() if each.url == url]
    await exposed.revoke()
    address = mesh.addresses[0]
    async with (
        FilesystemSandboxAsync(base_url=address) as plain,
        FilesystemSandboxAsync(base_url=address, template="gui") as gui,
    ):
        assert (await gui.desktop_url).startswith("http")
        with pytest.raises(CapabilityMissing, match="use the type gui"):
            await plain.desktop_url


async def test_a_server_that_dies_fails_the_call_under_way_and_is_there_again_for_viewers(mesh: Mesh) -> None:
    """One program is the X server and the VNC server."""
    async with (
        GuiSandboxAsync(base_url=mesh.addresses[0], timeout=120) as box,
        viewing(await box.desktop.url()) as person,
    ):
        await person.sees_a_picture(1024, 768)
        holding = asyncio.create_task(box.computer_use("hold_key", text="shift", duration=60))
        # What fails hears of it last: a viewer has had the desktop started again before.
        await box.run_shell_command(
            "until pgrep -x xdotool; do sleep 0.1; done; server=$(pgrep -x Xtigervnc); pkill -STOP -x xdotool; "
            "kill -9 $server; until pgrep -x Xtigervnc | grep -qvx $server; do sleep 0.1; done; pkill -CONT -x xdotool"
        )
        failed = await holding
        assert failed.is_error
        assert "the X server (Xtigervnc) ended with signal 9" in failed.text
        assert "the next call starts the desktop again" in failed.text
        shown = await box.computer_use("screenshot")
        assert not shown.is_error
        assert "the desktop was started again" in shown.text
        await person.sees_a_picture(1024, 768)
        await person.do("press", "Take over")
        await person.do("await", PERSON)


async def test_a_revoked_link_shows_nothing(box: GuiSandboxAsync) -> None:
    url = await box.desktop.url()
    (exposed,) = [each for each in await box.list_exposed() if each.url == url]
    assert exposed.kind == "desktop"
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert (answer.status, answer.headers["Referrer-Policy"]) == (200, "no-referrer")
        async with session.ws_connect(f"{url}websocket?viewer={'c' * 32}") as socket:
            await exposed.revoke()
            async with asyncio.timeout(30):
                while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
        for path in ("", f"websocket?viewer={'c' * 32}"):
            async with session.get(f"{url}{path}") as answer:
                assert answer.status == 404
        async with session.get(f"{url}websocket?viewer=x") as answer:
            assert answer.status == 400
