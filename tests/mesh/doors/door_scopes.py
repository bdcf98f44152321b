"""What every route of every door answers to every kind of key, as a table.

`python -m tests.mesh.doors.door_scopes` writes it into docs/door-access.md.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import web

from sandmesh.mesh import MeshAsync
from sandmeshd.contracts.mesh_address import MeshAddress
from sandmeshd.facades.agentscope.app import open_door as open_agentscope
from sandmeshd.facades.agentscope.settings import AgentscopeSettings
from sandmeshd.facades.e2b.app import open_door as open_e2b
from sandmeshd.facades.e2b.settings import E2bSettings
from sandmeshd.facades.jupyter.app import open_door as open_jupyter
from sandmeshd.facades.jupyter.plugin import JupyterSettings
from sandmeshd.facades.sandboxfusion.app import open_door as open_sandboxfusion
from sandmeshd.facades.swerex.app import open_door as open_swerex
from tests.mesh.conftest import run_mesh

JUPYTER: Final = "/jupyter/api/"
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "door-access.md"
DOORS: Final[dict[str, Any]] = {
    **dict.fromkeys(("e2b", "agentscope", "swerex", "sandboxfusion", "jupyter"), True),
    "sandboxfusion_template": "base",
}
"""The settings that open them all."""

SCOPES: Final = (
    "no key",
    "revoked",
    "read-only",
    "other user",
    "other sandbox",
    "this sandbox",
    "project-admin",
    "user",
    "admin",
)
POWERLESS: Final = SCOPES[:5]
"""Who may not use ada's sandbox."""

_HEAD: Final = """# What the doors answer to each kind of key

Made by `python -m tests.mesh.doors.door_scopes`, which sends a request to every route of every door, about a sandbox of
one user, with each kind of key; a test compares it with what the doors answer. A cell is the status of HTTP. The same
test searches the answers to the first five kinds for every token that lets anybody use the sandbox: there is none.

A key that may only look gets a sandbox's record without its tokens, and changes nothing. "Other" keys are those of
another user, and of another sandbox. 404 says that there is no such thing for this key; 501 that no key may do it here.
"""
_BODIES: Final[Mapping[str, dict[str, Any]]] = {
    "/call_tool": {"tool_name": "run_shell_command", "arguments": {"command": "true"}},
    "/run_code": {"code": "echo 1", "language": "bash"},
    "/run_jupyter": {"cells": ["1"]},
    "/v3/templates": {"name": "mine"},
    "/volumes": {"name": "mine"},
    "POST /templates/tags": {"target": "mine", "tags": ["a"]},
    "DELETE /templates/tags": {"name": "mine", "tags": ["a"]},
}


_SHELL: Final[Mapping[str, dict[str, Any]]] = {
    "execute": {"command": "true", "shell": True},
    "read_file": {"path": "/tmp/x"},
    "write_file": {"path": "/tmp/x", "content": ""},
}
"""SWE-ReX's methods, which are at several places."""

_OF_SANDBOXES: Final = tuple(
    f"/{name}"
    for name in (
        *("release", "start", "stop", "get_status", "get_info", "check_health", "list_tools", "call_tool"),
        "add_mcp_servers",
    )
)
"""AgentScope's methods that are about one sandbox."""


class _Door(Protocol):
    def add(self, application: web.Application) -> None:
        """Add the door to an application."""


@dataclass(frozen=True)
class Answer:
    """What a route answered."""

    status: int
    text: str


@dataclass
class World:
    """A mesh with all doors, and the keys of each scope."""

    url: str
    http: aiohttp.ClientSession
    client: MeshAsync
    keys: dict[str, str]
    made: dict[str, Any]
    kernel: str = ""
    """Ada's kernel of Jupyter's door."""

    @property
    def capabilities(self) -> list[str]:
        """What lets anybody use the sandbox."""
        return [self.made["envdAccessToken"], self.made["trafficAccessToken"]]

    async def renew(self) -> None:
        """Make ada's sandbox again where it has ended or is paused, and her kernel where it was deleted."""
        self.kernel = await kernel_of(self.http, self.url, self.keys["user"], self.kernel)
        headers = {"X-API-KEY": self.keys["user"]}
        async with self.http.get(f"{self.url}/sandboxes/{self.made['sandboxID']}", headers=headers) as response:
            if response.status == 200 and (await response.json())["state"] == "running":
                return
        await self.make()

    async def make(self) -> None:
        """Make ada's sandbox, and the key that is for it alone."""
        body = {"timeout": 600, "network": {"allowPublicTraffic": False}}
        headers = {"X-API-KEY": self.keys["user"]}
        async with self.http.post(f"{self.url}/v2/sandboxes", headers=headers, json=body) as response:
            self.made = await response.json()
        token = await self.client.tokens.create_for_sandbox(
            f"of-{self.made['sandboxID']}", f"sb_{self.made['sandboxID']}"
        )
        self.keys["this sandbox"] = token.secret

    async def send(self, method: str, path: str, scope: str) -> Answer:
        """Send a request to a route, as a key of a scope."""
        key, own = self.keys.get(scope, ""), self.made["sandboxID"]
        identity = f"sb_{own}"
        headers = {"X-API-KEY": key, "Authorization": f"Bearer {key}"} if key else {}
        one = self.kernel if path.startswith(JUPYTER) else own
        for name, value in {"id": one, "identity": identity, "name": "x", "template": "base"}.items():
            path = path.replace(f"{{{name}}}", value)
        place = re.sub(r"\{[^}]*\}", "x", path)
        named = _BODIES.get(f"{method} {place}") or _BODIES.get(place.removesuffix("_async"))
        body = dict(named or _SHELL.get(place.rpartition("/")[2], {}))
        if path.startswith(_OF_SANDBOXES):
            body["identity"] = identity
        sent = None if method == "GET" else body
        request = self.http.request(method, self.url + place, headers=headers, json=sent, allow_redirects=False)
        async with asyncio.timeout(120), request as response:
            shown = json.dumps(dict(response.headers))
            return Answer(response.status, f"{shown}\n{(await response.read()).decode(errors='replace')}")


async def kernel_of(http: aiohttp.ClientSession, url: str, key: str, kernel_id: str = "") -> str:
    """Return a user's kernel of Jupyter's door; one that is gone is made again."""
    headers = {"Authorization": f"token {key}"}
    async with http.get(f"{url}{JUPYTER}kernels/{kernel_id or 'none'}", headers=headers) as response:
        if response.status == 200:
            return kernel_id
    async with http.post(f"{url}{JUPYTER}kernels", headers=headers, json={}) as response:
        return str((await response.json())["id"])


async def routes(folder: Path) -> list[tuple[str, str, str]]:
    """Return the door, method and path of each route, from the doors themselves."""
    nowhere = MeshAddress("unix:///nowhere")
    doors: dict[str, AbstractAsyncContextManager[_Door]] = {
        "e2b": open_e2b(nowhere, "secret", folder, E2bSettings()),
        "agentscope": open_agentscope(nowhere, AgentscopeSettings()),
        "swerex": open_swerex(nowhere, 60.0),
        "sandboxfusion": open_sandboxfusion(nowhere, "base"),
        "jupyter": open_jupyter(nowhere, JupyterSettings()),
    }
    found: set[tuple[str, str, str]] = set()
    for name, opening in doors.items():
        application = web.Application()
        async with opening as door:
            door.add(application)
        for route in application.router.routes():
            assert route.resource is not None
            methods = ("GET", "POST") if route.method == "*" else (route.method,)
            found |= {(name, method, route.resource.canonical) for method in methods if method != "HEAD"}
    return sorted(found)


@asynccontextmanager
async def open_world() -> AsyncGenerator[World]:
    """Run a mesh with all doors."""
    async with (
        run_mesh(**DOORS) as mesh,
        aiohttp.ClientSession() as http,
        MeshAsync(mesh.addresses[0]) as client,
    ):
        tokens = client.tokens
        await client.quotas.assign("ada", "tea")
        ada, eve = [await tokens.create(name, user_id=name, form="e2b") for name in ("ada", "eve")]
        ended = await tokens.create("ended", user_id="ada", form="e2b")
        await tokens.revoke(ended.token)
        keys = {
            "revoked": ended.secret,
            "read-only": (await tokens.create("looks", user_id="ada", scope="read-only")).secret,
            "other user": eve.secret,
            "project-admin": (await tokens.create_for_project("leads", "tea")).secret,
            "user": ada.secret,
            "admin": (await tokens.create("root", scope="admin")).secret,
        }
        world = World(mesh.http.addresses[0], http, client, keys, {})
        keys["user"] = eve.secret
        await world.make()
        keys["other sandbox"], keys["user"] = keys["this sandbox"], ada.secret
        await world.renew()
        yield world


async def answers(world: World, folder: Path) -> dict[tuple[str, str, str], dict[str, Answer]]:
    """Send every route's request with every kind of key."""
    found: dict[tuple[str, str, str], dict[str, Answer]] = {}
    for door, method, path in await routes(folder):
        row = found[door, method, path] = {}
        for scope in SCOPES:
            row[scope] = await world.send(method, path, scope)
            await world.renew()
    return found


def page(found: Mapping[tuple[str, str, str], Mapping[str, Answer]]) -> str:
    """Return the page."""
    lines = [_HEAD]
    for door in dict.fromkeys(door for door, _, _ in found):
        lines += [f"## {door}", "", f"| route | {' | '.join(SCOPES)} |", f"| --- |{' --- |' * len(SCOPES)}"]
        for (name, method, path), row in found.items():
            if name == door:
                lines.append(f"| `{method} {path}` | {' | '.join(str(row[scope].status) for scope in SCOPES)} |")
        lines.append("")
    return "\n".join(lines)


async def main() -> None:
    """Write the page."""
    async with open_world() as world:
        PAGE.write_text(page(await answers(world, PAGE.parent / "nowhere")))


if __name__ == "__main__":
    asyncio.run(main())
