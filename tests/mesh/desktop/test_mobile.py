"""Sandboxes with an Android device: the real adb inside and outside, and a stand-in of the device."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync, MeshAsync, MobileSandbox, MobileSandboxAsync, errors
from tests.adb_device import HEIGHT, KEYBOARD, LATIN, MODEL, WIDTH, HostServer, StandIn, pixel, run_device
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, OTHER, PERSON, Viewer, viewing

pytestmark = [pytest.mark.needs("adb"), pytest.mark.asyncio(loop_scope="module")]

TEXT = "Zażółć 你好 ✓"


@dataclass
class Place:
    """A mesh with one attached device."""

    address: str
    device: StandIn
    server: HostServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    """Run a mesh with one attached device."""
    home: Path = tmp_path_factory.mktemp("adb")
    async with run_device() as device, HostServer(home).running() as server:
        await server.attach(device)
        async with run_mesh(adb_devices=[device.serial], adb_server=server.address) as mesh:
            yield Place(mesh.addresses[0], device, server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(place: Place) -> AsyncGenerator[MobileSandboxAsync]:
    """Run a sandbox that holds the device."""
    async with MobileSandboxAsync(base_url=place.address, timeout=60) as running:
        yield running


async def test_the_seven_tools_work_by_the_real_adb_client(place: Place, box: MobileSandboxAsync) -> None:
    size = await box.mobile_get_screen_resolution()
    assert json.loads(size.text) == size.structured == {"width": WIDTH, "height": HEIGHT}
    place.device.inputs.clear()
    assert (await box.mobile_tap([360, 640])).text == "Tapped at (360, 640)"
    assert (await box.mobile_tap(10, 20)).text == "Tapped at (10, 20)"
    assert (await box.mobile_tap(x=30, y=40)).text == "Tapped at (30, 40)"
    swiped = await box.mobile_swipe([100, 900], [100, 300], 250)
    assert swiped.text == "Swiped from (100, 900) to (100, 300)"
    assert (await box.mobile_key_event(3)).text == "Sent key event: 3"
    assert (await box.mobile_key_event("BACK")).text == "Sent key event: KEYCODE_BACK"
    assert (await box.adb_use("key_event", code="4")).text == "Sent key event: 4"
    assert place.device.inputs == [
        ["tap", "360", "640"],
        ["tap", "10", "20"],
        ["tap", "30", "40"],
        ["swipe", "100", "900", "100", "300", "250"],
        ["keyevent", "3"],
        ["keyevent", "KEYCODE_BACK"],
        ["keyevent", "4"],
    ]
    taken = await box.mobile_get_screenshot()
    assert taken.content[0]["mimeType"] == "image/png"
    assert [pixel(taken.images[0], *at) for at in ((360, 640), (500, 500))] == [255, 0]


async def test_text_is_typed_as_it_is_in_ascii_and_by_the_devices_keyboard_in_other_scripts(
    place: Place, box: MobileSandboxAsync
) -> None:
    place.device.typed = ""
    plain = 'it\'s 100%s "$HOME"; `id` &\nnext\tline'
    await box.mobile_input_text(plain)
    assert place.device.typed == plain
    refused = await box.mobile_input_text(TEXT)
    assert refused.is_error
    assert "installs ADBKeyboard" in refused.text
    place.device.typed = ""
    place.device.keyboards.append(KEYBOARD)
    assert (await box.mobile_input_text(TEXT)).text == f"Input text: {TEXT}"
    assert place.device.typed == TEXT
    assert place.device.keyboard == LATIN


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "tap", "coordinate": [1280, 1280]}, "(1280, 1280) is outside of the screen, which is 720x1280"),
        ({"action": "tap", "coordinate": [-1, 5]}, "outside of the screen"),
        ({"action": "tap", "coordinate": [1, 2, 3]}, "two numbers"),
        ({"action": "tap"}, "coordinate is missing"),
        ({"action": "swipe", "start": [1, 1], "end": [5000, 1]}, "end (5000, 1) is outside"),
        ({"action": "key_event", "code": "WARP"}, "There is no key 'WARP': use a number like 3, or a name like HOME"),
        ({"action": "key_event", "code": "3; reboot"}, "There is no key '3; reboot'"),
        ({"action": "key_event"}, "needs a code"),
        ({"action": "input_text", "text": ""}, "needs a text"),
    ],
)
async def test_what_does_not_fit_is_an_error_that_says_why(
    place: Place, box: MobileSandboxAsync, arguments: dict[str, object], message: str
) -> None:
    place.device.inputs.clear()
    result = await box.call_tool("adb_use", arguments)
    assert result.is_error
    assert message in result.text
    assert place.device.inputs == []


async def test_both_call_forms_of_a_tap_cannot_be_mixed(box: MobileSandboxAsync) -> None:
    for mixed in ({"coordinate": [1, 2], "y": 3}, {"coordinate": 1}, {"x": 1}, {"coordinate": 1, "x": 2, "y": 3}, {}):
        assert (await box.call_tool("mobile_tap", mixed)).is_error


async def test_a_tool_of_older_clients_does_the_same_and_is_not_listed(box: MobileSandboxAsync) -> None:
    tapped = await box.call_tool("adb", {"action": "tap", "coordinate": [5, 6]})
    assert tapped.text == "Tapped at (5, 6)"
    listed = await box.list_tools()
    assert sorted(listed["mobile"]) == [
        "adb_use",
        "mobile_get_screen_resolution",
        "mobile_get_screenshot",
        "mobile_input_text",
        "mobile_key_event",
        "mobile_swipe",
        "mobile_tap",
    ]
    assert "device" not in listed


async def test_adb_in_a_shell_reaches_the_sandboxs_device_and_nothing_else(
    place: Place, box: MobileSandboxAsync
) -> None:
    async def adb(command: str) -> str:
        return (await box.run_shell_command(f"adb {command} 2>&1; true")).text

    assert await adb("shell getprop ro.product.model") == f"{MODEL}\n"
    assert await adb(f"-s {place.device.serial} shell getprop ro.product.model") == f"{MODEL}\n"
    assert await adb("devices") == f"List of devices attached\n{place.device.serial}\tdevice\n\n"
    assert "is not this sandbox's device" in await adb("-s 10.0.0.1:5555 shell id")
    for command in ("connect 10.0.0.1:5555", "disconnect"):
        assert "it reaches only its device" in await adb(command), command
    for command in ("forward tcp:9 tcp:9", "reverse tcp:9 tcp:6379", "tcpip 5555", "root", "reboot"):
        assert "is not for sandboxes" in await adb(command), command
    await adb("kill-server")
    # The host's server still runs, and still the same.
    assert place.device.serial in await place.server.adb("devices")


async def inputs(device: StandIn, wanted: list[list[str]]) -> None:
    """Wait until a device has had just these."""
    async with asyncio.timeout(60):
        while device.inputs != wanted:
            assert device.inputs == wanted[: len(device.inputs)]
            await asyncio.sleep(0.05)


async def sees(viewer: Viewer, colours: int) -> None:
    """Wait until the picture of a device has so many colours."""
    seen: object = None
    try:
        async with asyncio.timeout(60):
            while (seen := await viewer.do("colours")) != [WIDTH, HEIGHT, colours]:
                pass
    except TimeoutError:
        raise AssertionError(f"the picture has width, height, colours {seen}") from None


@pytest.mark.needs("chromium")
async def test_a_person_watches_the_device_takes_it_over_and_hands_it_back(
    place: Place, box: MobileSandboxAsync
) -> None:
    place.device.inputs.clear()
    url = await box.mobile.url(ttl=600)
    async with viewing(url) as person, viewing(await box.mobile.url(readonly=True)) as other:
        for each in (person, other):
            await each.do("await", AGENT)
            await sees(each, 1)
        await box.mobile_tap(500, 500)
        for each in (person, other):
            await sees(each, 2)
        # Without control nothing arrives, and with a link that only shows there is no control.
        await person.do("point", "0.5 0.25")
        await other.do("point", "0.5 0.25")
        assert await person.do("shown", "Take over")
        assert not await other.do("shown", "Take over")
        place.device.inputs.clear()

        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await other.do("await", OTHER)
        held = await box.mobile_tap(1, 1)
        assert held.is_error
        assert "taken over" in held.text
        assert (await box.mobile_get_screenshot()).images
        await person.do("point", "0.5 0.25")
        await person.do("press", "Back")
        before = [["tap", "360", "320"], ["keyevent", "KEYCODE_BACK"]]
        await inputs(place.device, before)
        await person.do("type", "hello you")
        await inputs(place.device, [*before, ["text", "hello%syou"], ["keyevent", "KEYCODE_ENTER"]])

        await person.do("press", "Hand back")
        await person.do("await", AGENT)
        assert (await box.mobile_tap(3, 4)).text == "Tapped at (3, 4)"
        await person.do("press", "Take over")
        await person.do("await", PERSON)
    # Whoever leaves hands back.
    async with asyncio.timeout(60):
        while (await box.mobile_tap(3, 4)).is_error:
            pass


@pytest.mark.needs("chromium")
async def test_a_view_says_that_the_device_is_gone_and_shows_it_again(place: Place, box: MobileSandboxAsync) -> None:
    async with viewing(await box.mobile_url) as person:
        await person.do("await", AGENT)
        await sees(person, 2)
        await place.server.adb("disconnect", place.device.serial)
        await person.do("alarmed", "disconnected")
        await place.server.attach(place.device)
        await person.do("calm")


async def test_a_url_of_a_device_is_reused_revoked_and_of_sandboxes_with_one_alone(
    place: Place, box: MobileSandboxAsync
) -> None:
    url = await box.mobile_url
    assert url == await box.mobile_url

    def sync() -> str:
        with MobileSandbox(box.sandbox_id, base_url=place.address, timeout=60) as same:
            return same.mobile_url

    assert await asyncio.to_thread(sync) == url
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            assert response.status == 200
            assert "<title>Phone</title>" in await response.text()
        for exposed in await box.list_exposed():
            assert exposed.kind in {"mobile", "mobile-readonly"}
            await exposed.revoke()
        async with session.get(url) as response:
            assert response.status == 404
    async with MeshAsync(place.address) as mesh, BaseSandboxAsync(base_url=place.address, timeout=60) as other:
        with pytest.raises(errors.CapabilityMissing, match="use the type mobile"):
            await mesh.ports.show_mobile(other.sandbox_id)


async def test_a_device_has_one_holder_and_is_reset_before_the_next(tmp_path: Path) -> None:
    async with run_device() as device, HostServer(tmp_path).running() as server:
        await server.attach(device)
        async with run_mesh(adb_devices=[device.serial], adb_server=server.address) as mesh:
            async with MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60) as first:
                await first.mobile_tap(1, 2)
                assert device.inputs
                with pytest.raises(errors.PoolExhausted, match=f"{device.serial} is held by {first.sandbox_id}"):
                    await MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60).start()
            async with MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60) as second:
                assert (device.resets, device.inputs) == (2, [])
                assert (await second.mobile_tap(3, 4)).text == "Tapped at (3, 4)"


async def test_a_device_that_disconnects_in_mid_swipe_ends_the_call_and_serves_again_when_it_is_back(
    place: Place, box: MobileSandboxAsync
) -> None:
    place.device.breaks_in_swipe = True
    swiped = await box.mobile_swipe([1, 1], [2, 2])
    assert swiped.is_error
    assert "disconnected" in swiped.text or "failed" in swiped.text
    place.device.breaks_in_swipe = False
    await place.server.attach(place.device)
    assert (await box.mobile_swipe([1, 1], [2, 2])).text == "Swiped from (1, 1) to (2, 2)"


async def test_without_a_device_a_create_is_refused_with_what_to_do() -> None:
    async with run_mesh() as mesh:
        with pytest.raises(errors.CapabilityMissing, match="sandmesh up --adb-device SERIAL"):
            await MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60).start()


async def test_a_device_that_does_not_answer_and_a_server_that_does_not_run_are_named(tmp_path: Path) -> None:
    server = HostServer(tmp_path)
    async with run_mesh(adb_devices=["emulator-5554"], adb_server=server.address) as mesh:
        with pytest.raises(errors.PoolExhausted, match=f"no adb server answers at {server.address}.*adb start-server"):
            await MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60).start()
        async with server.running():
            with pytest.raises(errors.PoolExhausted, match="device 'emulator-5554' not found"):
                await MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60).start()


async def test_an_adb_server_of_another_version_is_an_error_that_names_both() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                request = await reader.readexactly(int(await reader.readexactly(4), 16))
                if request == b"host:version":
                    writer.write(b"OKAY00040027")
                    break
                writer.write(b"OKAY" + (b"sandmesh-reset-done\n" if request.startswith(b"shell:") else b""))
                if request.startswith(b"shell:"):
                    break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            run_mesh(adb_devices=["emulator-5554"], adb_server=address) as mesh,
            MobileSandboxAsync(base_url=mesh.addresses[0], timeout=60) as box,
        ):
            result = await box.mobile_tap(1, 2)
            assert result.is_error
            assert "adb server has version 39, and the sandbox's adb 41" in result.text


async def test_a_sandbox_of_another_type_reaches_no_device(place: Place, box: MobileSandboxAsync) -> None:
    program = (
        "import socket\n"
        "with socket.create_connection(('127.0.0.1', 3128)) as one:\n"
        "    one.sendall(b'000chost:version')\n"
        "    one.shutdown(socket.SHUT_WR)\n"
        "    print(one.recv(100))\n"
    )
    assert "OKAY0004" in (await box.run_ipython_cell(program)).text
    async with BaseSandboxAsync(base_url=place.address, timeout=60, network="public") as other:
        said = (await other.run_ipython_cell(program)).text
        assert "OKAY" not in said
        assert "HTTP/1.1 400" in said


async def test_a_program_without_an_event_loop_has_the_same_tools(place: Place, box: MobileSandboxAsync) -> None:
    def tap() -> str:
        with MobileSandbox(box.sandbox_id, base_url=place.address, timeout=60) as same:
            return same.mobile_tap([7, 8]).text

    assert await asyncio.to_thread(tap) == "Tapped at (7, 8)"
