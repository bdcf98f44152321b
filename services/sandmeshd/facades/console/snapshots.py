"""Snapshots: all that the session may see, taking one, deleting one."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sandmesh.mesh import SnapshotInfo
from sandmeshd.facades.console.records import milliseconds
from sandmeshd.facades.console.sessions import Session


async def list_snapshots(_: web.Request, session: Session) -> web.Response:
    """Return the snapshots, the newest first."""
    found = await session.mesh.snapshots.list()
    rows = [_snapshot_row(one) for one in reversed(found.snapshots)]
    return web.json_response({"snapshots": rows, "silent_nodes": list(found.silent_nodes)})


async def take(request: web.Request, session: Session) -> web.Response:
    """Take a snapshot of a sandbox."""
    return web.json_response(_snapshot_row(await session.mesh.snapshots.create(request.match_info["id"])))


async def delete(request: web.Request, session: Session) -> web.Response:
    """Delete a snapshot."""
    await session.mesh.snapshots.delete(request.match_info["snapshot"])
    return web.json_response({})


def _snapshot_row(one: SnapshotInfo) -> dict[str, Any]:
    return {
        "id": one.snapshot_id,
        "sandbox": one.sandbox_id,
        "template": one.sandbox_type,
        "bytes": one.size_bytes,
        "created": milliseconds(one.created.timestamp()),
        "node": one.node_id,
        "driver": one.driver,
    }
