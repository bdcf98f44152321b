"""Requests that no page of the console sends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmesh.errors import InvalidArgument
from sandmeshd.contracts.console import COOKIE
from sandmeshd.facades.console.app import Console, open_console
from sandmeshd.facades.console.sessions import MOST
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Caller:
    """A client of HTTP with a session of its own."""

    console: Console
    address: str
    http: aiohttp.ClientSession
    origin: str

    @property
    def headers(self) -> dict[str, str]:
        """What the console's pages send."""
        return {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}

    async def status(self, method: str, path: str, **options: object) -> int:
        """Send a request as the console's pages do, where `headers` say nothing else; return its status."""
        sent = {"headers": self.headers, **options}
        async with self.http.request(method, f"{self.origin}/console/api/{path}", **sent) as response:  # type: ignore[arg-type]
            return response.status


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller() -> AsyncGenerator[Caller]:
    """Begin a session with a console."""
    async with run_mesh() as mesh, open_console(mesh.addresses[0], "127.0.0.1:0") as console:
        link = urlsplit(console.link(None))
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            found = Caller(console, mesh.addresses[0], http, f"http://{link.netloc}")
            assert await found.status("POST", "session", json={"code": link.fragment.partition("=")[2]}) == 200
            yield found


async def test_the_cookie_is_for_the_console_only(caller: Caller) -> None:
    (cookie,) = [cookie for cookie in caller.http.cookie_jar if cookie.key == COOKIE]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/console", True, "Strict")


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {}),
        ("POST", {"Origin": "http://127.0.0.1:1"}),
        ("POST", {"Origin": "null"}),
        ("POST", {"Origin": "https://example.com"}),
        ("GET", {"Sec-Fetch-Site": "same-site"}),
        ("GET", {"Sec-Fetch-Site": "cross-site"}),
        ("GET", {"Origin": "http://127.0.0.1:1"}),
    ],
)
async def test_pages_of_others_are_refused_even_at_another_port(
    caller: Caller, method: str, headers: dict[str, str]
) -> None:
    async with BaseSandboxAsync(base_url=caller.address) as box:
        path = f"sandboxes/{box.sandbox_id}" + ("/kill" if method == "POST" else "")
        assert await caller.status(method, path, headers=headers) == 403
        assert await box.get_status() == "ready"


@pytest.mark.parametrize("path", ["live", "sandboxes/sb_x/terminal"])
async def test_a_websocket_of_another_origin_is_refused(caller: Caller, path: str) -> None:
    url = f"{caller.origin}/console/api/{path}"
    for headers in ({}, {"Origin": "http://127.0.0.1:1"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await caller.http.ws_connect(url, headers=headers)
        assert refused.value.status == 403


async def test_a_link_is_used_once(caller: Caller) -> None:
    code = urlsplit(caller.console.link(None)).fragment.partition("=")[2]
    async with aiohttp.ClientSession(headers=caller.headers) as http:
        for status in (200, 401):
            async with http.post(f"{caller.origin}/console/api/session", json={"code": code}) as response:
                assert response.status == status


async def test_who_may_only_look_makes_no_links_and_ends_no_session_of_others(caller: Caller) -> None:
    async with _guest(caller) as guest:
        assert await guest.status("GET", "session") == 200
        assert await guest.status("POST", "link") == 403
    for _ in range(MOST + 1):
        async with _guest(caller) as guest:
            assert await guest.status("GET", "session") == 200
    assert await caller.status("GET", "session") == 200


@asynccontextmanager
async def _guest(caller: Caller) -> AsyncGenerator[Caller]:
    """Begin a session by a link that the caller shares."""
    async with caller.http.post(f"{caller.origin}/console/api/link", headers=caller.headers) as response:
        url: str = (await response.json())["url"]
    code = urlsplit(url).fragment.partition("=")[2]
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        guest = replace(caller, http=http)
        assert await guest.status("POST", "session", json={"code": code}) == 200
        yield guest


async def test_another_name_of_this_address_is_refused(caller: Caller) -> None:
    assert await caller.status("GET", "session", headers={"Host": "evil.example"}) == 421


async def test_without_a_session_there_is_only_the_page(caller: Caller) -> None:
    async with aiohttp.ClientSession(headers=caller.headers) as http:
        for path in ("session", "live", "mesh", "sandboxes/sb_x", "sandboxes/sb_x/files", "sandboxes/sb_x/file?path=a"):
            async with http.get(f"{caller.origin}/console/api/{path}") as response:
                assert response.status == 401, path
        for body in ({"code": "x" * 43}, {"code": 7}, {}):
            async with http.post(f"{caller.origin}/console/api/session", json=body) as response:
                assert response.status == 401
        async with http.get(f"{caller.origin}/console/") as response:
            assert (response.status, response.headers["X-Frame-Options"]) == (200, "DENY")
            assert "script-src 'self';" in response.headers["Content-Security-Policy"]


async def test_bad_requests_are_answered_with_what_is_wrong(caller: Caller) -> None:
    async with BaseSandboxAsync(base_url=caller.address) as box:
        place = f"sandboxes/{box.sandbox_id}"
        for seconds in (0, -1, True, "5", 1e400, None):
            assert await caller.status("POST", f"{place}/renew", data=f'{{"seconds": {seconds!r}}}') == 400
        assert await caller.status("POST", f"{place}/cell", data="[") == 400
        assert await caller.status("POST", f"{place}/cell", json={"code": 7}) == 400
        assert await caller.status("GET", f"{place}/file?path=%00") == 400
        assert await caller.status("GET", f"{place}/file?path=missing") == 404
        assert await caller.status("GET", f"{place}/file?path=/etc/../../etc/shadow") == 400
        assert await caller.status("POST", f"{place}/explode", json={}) in (404, 405)
        assert await caller.status("GET", "sandboxes/sb_2222222222222222222222222") in (400, 404)


async def test_use_is_asked_of_a_page_of_sandboxes_at_most(caller: Caller) -> None:
    for ids in (None, "sb_x", [7], [""], ["x" * 129], ["sb_x"] * 101):
        assert await caller.status("POST", "use", json={"ids": ids}) == 400
    async with BaseSandboxAsync(base_url=caller.address) as box:
        sent = {"headers": caller.headers, "json": {"ids": [box.sandbox_id, "sb_2222222222222222222222222"]}}
        async with caller.http.post(f"{caller.origin}/console/api/use", **sent) as response:  # type: ignore[arg-type]
            assert set((await response.json())["use"]) == {box.sandbox_id}


BAD: list[tuple[str, str, dict[str, Any]]] = [
    *(("POST", "ports", {"seconds": 60, **one}) for one in ({}, {"port": "80"}, {"port": True}, {"port": 70_000})),
    *(("POST", "ports", {"port": 80, "seconds": one}) for one in (0, True, None, "60", 1e9)),
    *(("POST", "network/allow", {"host": one}) for one in (None, "", 7, "x" * 301, "a b", "*")),
    *(("POST", "/tokens", one) for one in ({}, {"name": "a", "scope": "root"}, {"name": 7})),
    ("POST", "/tokens", {"name": "a", "scope": "user", "seconds": 1.5}),
    *(("PUT", "/quota", {"project": "a", **one}) for one in ({}, {"limit": "beds"}, {"limit": "cpus", "value": True})),
]


async def test_bad_changes_are_refused(caller: Caller) -> None:
    async with BaseSandboxAsync(base_url=caller.address) as box:
        for method, path, fields in BAD:
            place = path[1:] if path.startswith("/") else f"sandboxes/{box.sandbox_id}/{path}"
            assert await caller.status(method, place, json=fields) == 400, (path, fields)
        assert await caller.status("DELETE", "snapshots/snap_none") == 404
        assert await caller.status("DELETE", "tokens/none") in (400, 404)


async def test_a_file_of_a_sandbox_is_nothing_that_a_browser_runs(caller: Caller) -> None:
    async with BaseSandboxAsync(base_url=caller.address) as box:
        await box.fs.write('p"\n.html', "<script>1</script>")
        url = f"{caller.origin}/console/api/sandboxes/{box.sandbox_id}/file"
        async with caller.http.get(url, params={"path": 'p"\n.html'}, headers=caller.headers) as response:
            assert await response.text() == "<script>1</script>"
            assert response.content_type == "application/octet-stream"
            assert response.headers["Content-Disposition"] == "attachment; filename*=UTF-8''p%22%0A.html"
            assert response.headers["Content-Security-Policy"].startswith("sandbox")


async def test_it_is_not_served_to_others_without_tls(caller: Caller) -> None:
    with pytest.raises(InvalidArgument, match="--tls-cert"):
        async with open_console(caller.address, "0.0.0.0:0"):
            pass


async def test_the_command_prints_a_link_that_opens_it(caller: Caller) -> None:
    command = (sys.executable, "-m", "sandmeshd.cli.user", "console", "--base-url", caller.address)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            link = urlsplit((await process.stdout.readline()).decode().strip())
        origin = f"http://{link.netloc}"
        code = {"code": link.fragment.partition("=")[2]}
        sent = {"headers": {"Origin": origin}, "json": code}
        async with aiohttp.request("POST", f"{origin}/console/api/session", **sent) as response:  # type: ignore[arg-type]
            assert (await response.json())["scope"] == "admin"
    finally:
        process.terminate()
        await process.wait()
    assert process.returncode in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
