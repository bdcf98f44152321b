"""Copies of a running sandbox: its files, its Python kernels where that is possible, and what it was made with."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from aiohttp import web

from sandmesh import SandboxAsync
from sandmesh.errors import CapabilityMissing, SandmeshError, WrongState
from sandmesh.events import Output
from sandmesh.inputs import Options
from sandmesh.mesh import MeshAsync, SnapshotInfo
from sandmesh.sandbox.snapshots import refuses_kernels
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.control.creation import LONGEST_SECONDS
from sandmeshd.facades.e2b.control.sandboxes import own_sandbox
from sandmeshd.facades.e2b.control.views import Views
from sandmeshd.facades.e2b.envd.paths import inside
from sandmeshd.facades.e2b.errors import ApiError, api_error
from sandmeshd.facades.e2b.marks import Marks
from sandmeshd.facades.e2b.messages import FORK, read_fields
from sandmeshd.facades.e2b.pauses import Pauser
from sandmeshd.facades.e2b.requests import api_key, natural

MOST = 20
# Where the door is killed before it deletes the snapshot.
_KEPT_SECONDS = 600.0


class ForkRoutes:
    """Answers requests for copies, each in the name of its key."""

    def __init__(self, clients: MeshClients, pauser: Pauser, views: Views) -> None:
        self._clients = clients
        self._pauser = pauser
        self._views = views

    async def create(self, request: web.Request) -> web.Response:
        """Make sandboxes with the files and kernels of one; each is made or refused by itself."""
        key, found = api_key(request), await read_fields(request, FORK)
        seconds = natural(found.get("timeout", 300), "timeout", LONGEST_SECONDS)
        count = natural(found.get("count", 1), "count", MOST)
        if count == 0:
            raise ApiError(400, f"count is a whole number from 1 to {MOST}")
        async with self._clients.client(key) as mesh:
            info, marks = await own_sandbox(mesh, request)
            if info.state == "PAUSED":
                raise ApiError(409, f"sandbox {request.match_info['id']} is paused: connect to it, then fork it")
            options: Options = {
                "env": await self._variables(info.sandbox_id, key, marks),
                "labels": marks.labels(),
                "ttl": marks.lease(max(1, seconds)),
                "auto_resume": False,
                "limits": info.limits,
                "network": info.network,
            }
            if marks.volumes:
                options["volumes"] = {inside(path): volume for path, volume in marks.volumes.items()}
            snapshot = await _snapshot(mesh, info.sandbox_id)
            try:
                options["snapshot"] = snapshot
                making = (self._make(mesh, info.template, marks, options) for _ in range(count))
                made = await asyncio.gather(*making)
            finally:
                await mesh.snapshots.delete(snapshot)
        if marks.auto_pause:
            self._pauser.note()
        return web.json_response(made, status=201)

    async def _make(self, mesh: MeshAsync, template: str, marks: Marks, options: Options) -> dict[str, Any]:
        try:
            session = await mesh.sessions.connect(f"e2b-{uuid.uuid4().hex}", sandbox_type=template, **options)
        except SandmeshError as error:
            refused = api_error(error)
            return {"error": {"code": refused.status, "message": refused.message}}
        (sandbox_id,) = session.sandboxes.values()
        return {"sandbox": self._views.created(sandbox_id, marks)}

    async def _variables(self, sandbox_id: str, key: str, marks: Marks) -> dict[str, str]:
        """Return the variables that a sandbox was made with: records have no values, which may be secrets."""
        if not marks.variables:
            return {}
        async with (
            SandboxAsync(sandbox_id, base_url=self._clients.address, bearer_token=key) as box,
            await box.processes.start(["env", "-0"]) as process,
        ):
            output = b"".join([one.data async for one in process if isinstance(one, Output) and one.stream == "stdout"])
        pairs = (line.decode(errors="surrogateescape").partition("=") for line in output.split(b"\0") if line)
        return {name: value for name, _, value in pairs if name in marks.variables}


async def _snapshot(mesh: MeshAsync, sandbox_id: str) -> SnapshotInfo:
    """Take the snapshot that copies begin with, without kernels where they cannot be copied."""
    try:
        return await mesh.snapshots.create(sandbox_id, kernels=True, ttl=_KEPT_SECONDS)
    except (CapabilityMissing, WrongState) as error:
        if not refuses_kernels(error):
            raise
        return await mesh.snapshots.create(sandbox_id, ttl=_KEPT_SECONDS)
