"""What a sandbox uses now, for E2B's clients: the mesh keeps no history of it."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from sandmesh import SandboxAsync
from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.control.sandboxes import own_sandbox
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import read_marks
from sandmeshd.facades.e2b.requests import api_key, natural

_SECONDS: Final = 30.0
_LATEST: Final = 1 << 40
_MOST_AT_ONCE: Final = 100
_MOST_MEASURED: Final = 8
_PROGRAM: Final = """
import glob, json, os, time

def ticks():
    total = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = open(path).read().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total

def memory():
    pages = 0
    for path in glob.glob("/proc/[0-9]*/statm"):
        try:
            size, resident, shared = open(path).read().split()[:3]
        except OSError:
            continue
        pages += int(resident) - int(shared)
    return pages * os.sysconf("SC_PAGE_SIZE")

began, before = time.monotonic(), ticks()
time.sleep(0.1)
used = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
lines = dict(line.split(":", 1) for line in open("/proc/meminfo") if ":" in line)
disk = os.statvfs(".")
print(json.dumps({
    "cpu": used, "cores": len(os.sched_getaffinity(0)), "memory": memory(),
    "total": int(lines["MemTotal"].split()[0]) * 1024,
    "disk": (disk.f_blocks - disk.f_bfree) * disk.f_frsize, "size": disk.f_blocks * disk.f_frsize,
}))
"""
"""Of user code's processes; memory that they share, as a Python's, is not counted."""


class MetricsRoutes:
    """Answers the requests about what sandboxes use."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._measured = asyncio.Semaphore(_MOST_MEASURED)

    async def get(self, request: web.Request) -> web.Response:
        """Return what a sandbox uses now; nothing for a paused one, and for times that do not include now."""
        key = api_key(request)
        start, end = natural(request.query.get("start", 0), "start", _LATEST), request.query.get("end")
        latest = natural(end, "end", _LATEST) if end else _LATEST
        async with self._clients.client(key) as mesh:
            info, _ = await own_sandbox(mesh, request)
        if info.state == "PAUSED" or not start <= time.time() <= latest + 1:
            return web.json_response([])
        return web.json_response([await self._measure(info, key)])

    async def get_several(self, request: web.Request) -> web.Response:
        """Return what each of several sandboxes uses now, without those that are paused or not the caller's."""
        key = api_key(request)
        names = [name for name in request.query.get("sandbox_ids", "").split(",") if name]
        if not 1 <= len(names) <= _MOST_AT_ONCE:
            raise ApiError(400, f"sandbox_ids: name 1 to {_MOST_AT_ONCE} sandboxes, with commas between them")
        async with self._clients.client(key) as mesh:
            infos = {public_id(one.sandbox_id): one for one in await mesh.sandboxes.list()}
        found = [(name, infos[name]) for name in dict.fromkeys(names) if name in infos]
        running = [(name, info) for name, info in found if info.state == "READY" and read_marks(info.labels)]
        samples = await asyncio.gather(*(self._measure(info, key) for _, info in running))
        return web.json_response({"sandboxes": dict(zip((name for name, _ in running), samples, strict=True))})

    async def _measure(self, info: SandboxInfo, key: str) -> dict[str, Any]:
        async with (
            self._measured,
            SandboxAsync(info.sandbox_id, base_url=self._clients.address, bearer_token=key) as box,
        ):
            command = f"exec python -I -c {shlex.quote(_PROGRAM)}"
            measured = await box.call_tool("run_shell_command", {"command": command, "timeout": _SECONDS})
        try:
            return _sample(info, json.loads(measured.stdout))
        except (ValueError, KeyError, TypeError):
            raise ApiError(503, f"the sandbox could not be measured: {measured.text[:500]}") from None


def _sample(info: SandboxInfo, found: dict[str, Any]) -> dict[str, Any]:
    cores = info.limits.cpus or int(found["cores"])
    now = datetime.now(UTC)
    return {
        "timestamp": now.isoformat().replace("+00:00", "Z"),
        "timestampUnix": int(now.timestamp()),
        "cpuCount": max(1, round(cores)),
        "cpuUsedPct": round(100 * float(found["cpu"]) / cores, 2),
        "memUsed": int(found["memory"]),
        "memTotal": int(info.limits.memory or found["total"]),
        "memCache": 0,
        "diskUsed": int(found["disk"]),
        "diskTotal": int(info.limits.disk or found["size"]),
    }
