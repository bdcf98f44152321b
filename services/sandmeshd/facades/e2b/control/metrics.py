"""Routes of what sandboxes use."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.control.meter import SandboxMeter
from sandmeshd.facades.e2b.control.sandboxes import own_sandbox
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import read_marks
from sandmeshd.facades.e2b.messages import METRICS, SEVERAL_METRICS, check_query
from sandmeshd.facades.e2b.requests import api_key, natural

_LATEST: Final = 1 << 40
_MOST_AT_ONCE: Final = 100


class MetricsRoutes:
    """Answers the requests about what sandboxes use."""

    def __init__(self, clients: MeshClients, meter: SandboxMeter) -> None:
        self._clients = clients
        self._meter = meter

    async def get(self, request: web.Request) -> web.Response:
        """Return what a sandbox uses now, and has used since somebody first asked."""
        key = api_key(request)
        check_query(request, METRICS)
        start, end = natural(request.query.get("start", 0), "start", _LATEST), request.query.get("end")
        latest = natural(end, "end", _LATEST) if end else _LATEST
        async with self._clients.client(key) as mesh:
            info, _ = await own_sandbox(mesh, request)
        return web.json_response(await self._meter.history(info, key, start, latest))

    async def get_several(self, request: web.Request) -> web.Response:
        """Return what each of several sandboxes uses now, without those that are paused or not the caller's."""
        key = api_key(request)
        check_query(request, SEVERAL_METRICS)
        names = [name for name in request.query.get("sandbox_ids", "").split(",") if name]
        if not 1 <= len(names) <= _MOST_AT_ONCE:
            raise ApiError(400, f"sandbox_ids: name 1 to {_MOST_AT_ONCE} sandboxes, with commas between them")
        async with self._clients.client(key) as mesh:
            infos = {public_id(one.sandbox_id): one for one in await mesh.sandboxes.list()}
        found = [(name, infos[name]) for name in dict.fromkeys(names) if name in infos]
        running = [(name, info) for name, info in found if info.state == "READY" and read_marks(info.labels)]
        samples = await asyncio.gather(*(self._meter.measure(info, key) for _, info in running))
        return web.json_response({"sandboxes": dict(zip((name for name, _ in running), samples, strict=True))})
