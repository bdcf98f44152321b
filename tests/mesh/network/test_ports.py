"""Ports of sandboxes at the gateway's HTTP listener: real servers inside, a real client outside."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from sandmesh import BaseSandbox, BaseSandboxAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker
from tests.mesh.viewers import CHROMIUM

SERVER = (Path(__file__).parent / "port_server.py").read_text()


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def url(box: BaseSandboxAsync) -> str:
    """The URL of a server that runs in the box."""
    await box.fs.write("server.py", SERVER)
    server = await box.processes.start("python3 server.py")
    await server.wait_for_port(8000)
    await server.detach()
    return (await box.expose(8000)).url


@pytest_asyncio.fixture(loop_scope="module")
async def client() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def test_requests_and_answers_pass(url: str, client: aiohttp.ClientSession) -> None:
    where = URL(f"{url}echo/a%20b?x=1&y=%2F", encoded=True)
    async with client.get(where, headers={"X-One": "1", "Connection": "X-Hop", "X-Hop": "1"}) as answer:
        echo = await answer.json()
    assert (answer.status, echo["method"]) == (200, "GET")
    assert echo["path"] == "/echo/a%20b?x=1&y=%2F"
    headers = {name.lower(): value for name, value in echo["headers"]}
    assert headers["host"] == "localhost:8000"
    assert headers["x-one"] == "1"
    assert "x-hop" not in headers
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-prefix"] == url[url.index("/p/") :].rstrip("/")
    async with client.post(f"{url}echo", data=b"body", headers={"Content-Type": "x/y"}) as answer:
        echo = await answer.json()
    assert (echo["method"], echo["body"]) == ("POST", "body")


async def test_large_bodies_pass_both_ways(url: str, client: aiohttp.ClientSession) -> None:
    data = bytes(range(256)) * 40_000
    async with client.put(f"{url}length", data=io.BytesIO(data)) as answer:
        assert await answer.text() == str(len(data))
    async with client.get(f"{url}large/{len(data)}") as answer:
        assert answer.headers["Content-Length"] == str(len(data))
        assert len(await answer.read()) == len(data)
    async with client.head(f"{url}large/{len(data)}") as answer:
        assert answer.headers["Content-Length"] == str(len(data))


async def test_events_come_as_they_are_sent(url: str, client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(20), client.get(f"{url}events") as answer:
        assert await answer.content.readline() == b"data: 1\n"
        # The second is sent only once this is asked for.
        async with client.post(f"{url}next") as more:
            assert more.status == 200
        assert await answer.content.readline() == b"\n"
        assert await answer.content.readline() == b"data: 2\n"


async def test_places_and_cookies_are_below_the_url(url: str, client: aiohttp.ClientSession) -> None:
    prefix = url[url.index("/p/") :]
    async with client.get(f"{url}redirect", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, f"{prefix}echo")
        assert f"Path={prefix}" in answer.headers["Set-Cookie"]
    async with client.get(f"{url}echo") as answer:
        echo = await answer.json()
    assert ["Cookie", "a=b"] in echo["headers"]
    async with client.get(url.rstrip("/"), allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (308, prefix)


async def test_websockets_pass_both_ways(url: str, client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(20), client.ws_connect(f"{url}ws", protocols=["other", "chat"]) as socket:
        assert socket.protocol == "chat"
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        await socket.send_bytes(b"\x00" * 300_000)
        assert await socket.receive_bytes() == b"\x00" * 300_000
        await socket.send_str("bye")
        message = await socket.receive()
    assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 4001, "as agreed")


async def test_a_url_that_is_revoked_or_was_never_made_is_not_found(
    box: BaseSandboxAsync, url: str, client: aiohttp.ClientSession
) -> None:
    (exposed,) = await box.list_exposed()
    assert (exposed.url, exposed.port) == (url, 8000)
    async with client.get(f"{url}events") as open_answer:
        await open_answer.content.readline()
        assert (await box.list_exposed())[0].connections == 1
        await exposed.revoke()
        with pytest.raises(aiohttp.ClientError):
            await open_answer.content.read()
    await exposed.revoke()
    assert await box.list_exposed() == []
    forged = url[:-2] + ("a" if url[-2] != "a" else "b") + "/"
    for gone in (url, forged, url.replace("/p/", "/p/x")):
        async with client.get(gone) as answer:
            assert answer.status == 404
            assert "expired" in await answer.text()


async def test_pooled_connections_of_a_revoked_url_are_closed_before_revoke_answers(
    box: BaseSandboxAsync, url: str, client: aiohttp.ClientSession
) -> None:
    for exposed in [*await box.list_exposed(), *[await box.expose(8000) for _ in range(20)]]:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(_status(client, f"{exposed.url}echo"))
        await exposed.revoke()
        assert [await _status(client, f"{exposed.url}echo") for _ in range(4)] == [404] * 4


async def _status(client: aiohttp.ClientSession, url: str | URL) -> int:
    async with client.get(url) as answer:
        await answer.read()
        return answer.status


async def test_a_percent_encoded_token_is_not_found(url: str, client: aiohttp.ClientSession) -> None:
    before, _, token = url.rstrip("/").rpartition("/")
    other = f"{before}/%{ord(token[0]):02x}{token[1:]}"
    for spelling in (f"{other}/", f"{other}/echo", other, f"{before.replace('/p', '/%70')}/{token}/echo"):
        async with client.get(URL(spelling, encoded=True), allow_redirects=False) as answer:
            assert answer.status == 404
    assert await _status(client, f"{url}echo") == 200


async def test_a_url_ends_at_its_time(box: BaseSandboxAsync, client: aiohttp.ClientSession) -> None:
    lasting, brief = await box.expose(9), await box.expose(9, ttl=1)
    async with asyncio.timeout(30):
        while [each.exposure_id for each in await box.list_exposed()] != [lasting.exposure_id]:
            await box.run_shell_command("sleep 0.1")
    for exposed, status, said in ((lasting, 502, "port 9"), (brief, 404, "expired")):
        async with client.get(exposed.url) as answer:
            assert answer.status == status
            assert said in await answer.text()


@pytest.mark.parametrize("ttl", [float("inf"), float("nan"), -1.0, 0.0, 1e300, "1"])
async def test_a_time_that_cannot_be_is_a_named_error(box: BaseSandboxAsync, ttl: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="ttl"):
        await box.expose(8000, ttl=ttl)


@pytest.mark.parametrize("port", [-1, 0, 65_536, 1 << 40, True, "80"])
async def test_a_port_that_cannot_be_is_a_named_error(box: BaseSandboxAsync, port: int) -> None:
    with pytest.raises(errors.InvalidArgument, match="port"):
        await box.expose(port)


async def test_a_change_of_protocol_that_was_not_asked_for_is_not_passed_on(
    url: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{url}switch") as answer:
        assert answer.status == 502
    assert await _status(client, f"{url}echo") == 200


async def test_one_owner_leaves_three_quarters_of_the_connections_to_others(
    mesh: Mesh, box: BaseSandboxAsync, url: str
) -> None:
    urls = [url, (await box.expose(8000)).url]
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
        BaseSandboxAsync(base_url=mesh.addresses[0]) as other,
    ):
        others = (await other.expose(8000)).url
        begun = 0

        async def hold(at: str) -> None:
            nonlocal begun
            async with client.get(f"{at}held") as answer:
                await answer.content.readany()
                # Those that waited for a place too long are refused.
                begun += answer.status == 200
                await asyncio.Event().wait()

        holding = [asyncio.create_task(hold(urls[number % 2])) for number in range(160)]
        try:
            while begun < 128:  # noqa: ASYNC110 - the gateway says to nobody how many it carries
                await asyncio.sleep(0.05)
            assert await _status(client, others) == 502
            assert begun == 128
        finally:
            for task in holding:
                task.cancel()
            await asyncio.wait(holding)


async def test_a_url_is_not_found_as_soon_as_its_sandbox_ended(mesh: Mesh, client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as made:
        exposed = await made.expose(8000)
        assert await _status(client, exposed.url) == 502
    assert await _status(client, exposed.url) == 404


async def test_what_cannot_be_exposed_is_refused(box: BaseSandboxAsync) -> None:
    with pytest.raises(errors.InvalidArgument, match="port"):
        await box.expose(70_000)
    with pytest.raises(errors.InvalidArgument, match="ttl"):
        await box.expose(80, ttl=0.5)


async def test_the_sync_box_exposes_too(mesh: Mesh) -> None:
    def use() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            exposed = box.expose(8000, ttl=60)
            assert exposed.url.startswith("http://127.0.0.1:")
            assert [each.exposure_id for each in box.list_exposed()] == [exposed.exposure_id]
            exposed.revoke()
            assert box.list_exposed() == []

    await asyncio.to_thread(use)


@pytest.mark.asyncio(loop_scope="module")
async def test_with_a_domain_every_port_is_a_name_of_its_own(
    make_mesh: MeshMaker, client: aiohttp.ClientSession
) -> None:
    async with (
        asyncio.timeout(60),
        make_mesh(ports_domain="ports.test") as mesh,
        BaseSandboxAsync(base_url=mesh.addresses[0]) as box,
    ):
        await box.fs.write("server.py", SERVER)
        server = await box.processes.start("python3 server.py")
        await server.wait_for_port(8000)
        url = URL((await box.expose(8000)).url)
        assert str(url.host).endswith(".ports.test")
        here = {"Host": url.authority}
        async with client.get(url.with_host("127.0.0.1") / "redirect", headers=here, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/echo")
            assert answer.headers["Set-Cookie"] == "a=b; Path=/"
        async with client.get(url.with_host("127.0.0.1"), headers={"Host": f"x{url.authority}"}) as answer:
            assert answer.status == 404
        async with client.get(url.with_host("127.0.0.1") / "healthz") as answer:
            assert await answer.text() == "ok\n"


async def test_a_browser_on_this_machine_is_led_to_a_name_of_the_port(url: str, client: aiohttp.ClientSession) -> None:
    page = URL(url) / "page"
    token, navigate = page.path.split("/")[2], {"Sec-Fetch-Mode": "navigate"}
    async with client.get(page.with_query("a=b"), headers=navigate, allow_redirects=False) as answer:
        assert answer.status == 307
        named = URL(answer.headers["Location"])
    assert str(named) == f"http://{token}.localhost:{page.port}/page?a=b"
    for headers in ({}, {"Sec-Fetch-Mode": "cors"}, {**navigate, "Host": "mesh.example"}):
        async with client.get(page, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 200, headers
    for name, status in ((token, 200), (token[:-1] + "_", 404), ("0" * 61, 404), ("www", 404)):
        host = {"Host": f"{name}.localhost:{page.port}"}
        async with client.get(page.with_path("/page"), headers=host) as answer:
            assert answer.status == status, name


@pytest.mark.needs("chromium")
async def test_links_of_a_page_that_begin_with_a_slash_and_its_websocket_work_in_a_browser(
    url: str, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--no-first-run")
    command, quiet = (CHROMIUM, *options, f"{url}page"), subprocess.DEVNULL
    browser = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        async with client.get(f"{url}seen") as answer:
            assert await answer.text() == "a page /page"
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        await browser.wait()
