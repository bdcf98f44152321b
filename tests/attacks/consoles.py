"""The console: ada's sandbox by every route, with sessions of others, of who only looks, forged, or of other pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmeshd.contracts.console import COOKIE
from sandmeshd.facades.console.app import Console, open_console
from tests.attacks.tally import Tally
from tests.attacks.target import PAGE, Target

SECRET: Final = "the-file-of-ada"  # noqa: S105 - what is looked for
_STRANGERS: Final = ("bob", "bob's sandbox", "one whose token expired", "one whose token was revoked", "a stranger")
_READERS: Final = ("a reader of ada's", "a reader", "ada")
"""The last by a link that she shared."""
_SHOWN: Final = ("", "/logs", "/network")
"""What of a sandbox is shown to who may look at it."""
_FORGED: Final = ("", "x" * 43, "../../", "0" * 8_000, "%00", "None")
_ORIGINS: Final = ("", "null", "http://127.0.0.1:1", "https://example.com", "http://localhost", "file://")
_ACTIONS: Final = ("kill", "pause", "resume", "renew")
_BODY: Final = {"code": f"open('kept', 'w').write('{'x' * 9}')", "seconds": 60, "port": 8080, "host": "example.com"}
_REFUSED: Final = (400, 401, 403, 404)


@dataclass(frozen=True)
class _Visitor:
    http: aiohttp.ClientSession
    origin: str

    async def send(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        """Send a request as the console's pages do, where `headers` say nothing else."""
        sent = {"Origin": self.origin, **headers}
        body = None if method == "GET" else _BODY
        async with self.http.request(method, self.origin + path, headers=sent, json=body) as response:
            return response.status, (await response.read()).decode(errors="replace")


async def enter(target: Target, tally: Tally) -> None:
    """Send each route as each of them; what ada has stays as it is."""
    async with target.box("ada") as box, open_console(target.world.address, "127.0.0.1:0") as console:
        await box.fs.write("kept", SECRET)
        routes = _routes(console, box.sandbox_id, target.adas.snapshot_id)
        for who in (*_STRANGERS, *_READERS):
            await _visit(target, tally, console, who, routes)
        async with _visitor(console, console.link(target.world.secrets["ada"])) as (visitor, _):
            for origin in _ORIGINS:
                for method, path in routes:
                    if method != "GET":
                        status, _ = await visitor.send(method, path, Origin=origin)
                        tally.note(f"ada from {origin!r}: {method} {path}: {status}", held=status == 403)
        async with aiohttp.ClientSession() as http:
            visitor = _Visitor(http, visitor.origin)
            for cookie in _FORGED:
                for method, path in routes:
                    status, _ = await visitor.send(method, path, Cookie=f"{COOKIE}={cookie}")
                    tally.note(f"cookie {cookie:.9}: {method} {path}: {status}", held=status in _REFUSED)
        kept = ""
        with suppress(SandmeshError):
            kept = await box.fs.read("kept")
        tally.note("ada's sandbox runs on, and her file is what it was", held=kept == SECRET)


async def _visit(target: Target, tally: Tally, console: Console, who: str, routes: list[tuple[str, str]]) -> None:
    link = console.link(target.world.secrets.get(who, "never-was"), read_only=who == "ada")
    async with _visitor(console, link) as (visitor, begun):
        ended = begun == 401
        for method, path in routes:
            status, text = await visitor.send(method, path)
            of_box = path.partition("/sandboxes/")[2].partition("/")
            shows = who in _READERS and method == "GET" and (not of_box[0] or f"{of_box[1]}{of_box[2]}" in _SHOWN)
            leaks = any(one in text for one in (SECRET, PAGE, target.token))
            held = status in _REFUSED or (status < 500 and not ended and (shows or not of_box[0]) and not leaks)
            tally.note(f"{who}: {method} {path}: {status}", held=held)


@asynccontextmanager
async def _visitor(console: Console, link: str) -> AsyncGenerator[tuple[_Visitor, int]]:
    """Begin a session by a link; yield who has it and the status of its begin."""
    found = urlsplit(link)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        visitor = _Visitor(http, f"{found.scheme}://{found.netloc}")
        sent: dict[str, Any] = {"code": found.fragment.partition("=")[2]}
        place = f"{visitor.origin}/console/api/session"
        async with http.post(place, headers={"Origin": visitor.origin}, json=sent) as response:
            status = response.status
        yield visitor, status


def _routes(console: Console, sandbox_id: str, snapshot_id: str) -> list[tuple[str, str]]:
    """Return the routes that need a session, about a sandbox, from the console itself."""
    application = web.Application()
    console.add(application)
    found: set[tuple[str, str]] = set()
    for route in application.router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if not path.startswith("/console/api/") or path.endswith("/session") or route.method == "HEAD":
            continue
        names = {"id": sandbox_id, "snapshot": snapshot_id, "exposure": "x", "token": "x", "change": "allow"}
        for action in _ACTIONS if "{action" in path else ("",):
            place = path.format_map({**names, "action": action})
            found.add((route.method, f"{place}?path=kept" if "/file" in place else place))
    return sorted(found)
