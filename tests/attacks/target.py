"""The mesh that is attacked: what is ada's in it, and bob, who wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
from google.protobuf.duration_pb2 import Duration

from sandmesh import BaseSandboxAsync, MeshAsync
from sandmesh.api.port.v1 import port_pb2, port_pb2_grpc
from tests.mesh.doors.door_scopes import DOORS, kernel_of
from tests.mesh.tenants.access_world import Owned, World, open_world

DOMAIN = "ports.test"
PAGE = "the-page-of-ada"
_SERVER = f"""
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{PAGE}")
    do_POST = do_PUT = do_DELETE = do_GET
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


@dataclass(frozen=True)
class Target:
    """A mesh with all doors, names for ports, pools and an audit file."""

    world: World
    http: aiohttp.ClientSession
    adas: Owned
    """A sandbox of ada's, with a session, a call, a snapshot and a token."""
    token: str
    """The part of the URL of ada's page that lets anybody see it."""
    made: dict[str, Any]
    """A sandbox that ada made through E2B's door."""
    kernel: str
    """A kernel that ada made through Jupyter's door."""
    audit: Path

    @property
    def url(self) -> str:
        """The address of HTTP."""
        return self.world.http

    async def get(self, path: str, **options: Any) -> tuple[int, str]:
        """Send a request and return its status and body."""
        method = options.pop("method", "GET")
        async with asyncio.timeout(60), self.http.request(method, self.url + path, **options) as response:
            return response.status, (await response.read()).decode(errors="replace")

    def box(self, who: str, **values: Any) -> BaseSandboxAsync:
        """Return a new sandbox of somebody's."""
        return BaseSandboxAsync(base_url=self.world.address, bearer_token=self.world.secrets[who], **values)


@asynccontextmanager
async def open_target(folder: Path) -> AsyncGenerator[Target]:
    """Run the mesh, and make what ada has."""
    audit = folder / "audit.log"
    settings = {**DOORS, "ports_domain": DOMAIN, "audit_file": audit, "pools": {"base": 1}}
    async with (
        open_world(**settings) as world,
        aiohttp.ClientSession() as http,
        MeshAsync(world.address, bearer_token=world.secrets["root"]) as admin,
    ):
        for name in ("ada", "bob"):
            of_door = await admin.tokens.create(f"{name}-e2b", user_id=name, form="e2b")
            world.secrets[f"{name}'s key"] = of_door.secret
        await world.guest("bob's sandbox", (await world.own("bob")).sandbox_id)
        adas = await world.own("ada")
        headers = {"X-API-KEY": world.secrets["ada's key"]}
        async with http.post(f"{world.http}/v2/sandboxes", headers=headers, json={"timeout": 3000}) as response:
            made = await response.json()
        kernel = await kernel_of(http, world.http, world.secrets["ada's key"])
        yield Target(world, http, adas, await _serve(world, http, adas), made, kernel, audit)


async def _serve(world: World, http: aiohttp.ClientSession, adas: Owned) -> str:
    async with BaseSandboxAsync(adas.sandbox_id, base_url=world.address, bearer_token=world.secrets["ada"]) as box:
        start = f"import subprocess; subprocess.Popen(['python3', '-c', {_SERVER!r}])"
        await box.run_ipython_cell(start)
    request = port_pb2.ExposePortRequest(sandbox_id=adas.sandbox_id, port=8080, ttl=Duration(seconds=3600))
    stub = port_pb2_grpc.PortServiceStub(world.channel)
    exposed = (await stub.ExposePort(request, metadata=world.metadata("ada"))).port
    token = exposed.url.partition("://")[2].partition(".")[0]
    async with asyncio.timeout(30):
        while True:
            async with http.get(f"{world.http}/p/{token}/") as response:
                if response.status == 200 and await response.text() == PAGE:
                    return token
            await asyncio.sleep(0.1)


def object_of(text: str) -> dict[str, Any]:
    """Return the object that a text is in JSON, an empty one where it is something else."""
    try:
        found: object = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
