"""What sandboxes use, and the calls that were made in them. To ask a sandbox counts as a use of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from aiohttp import web

from sandmesh import CallSummary, McpServer, SandboxStats, StatsSample
from sandmesh.errors import ProtocolMismatch, SandmeshError, ToolNotFound
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.console.records import milliseconds
from sandmeshd.facades.console.sessions import Session

_MOST: Final = 100
"""Sandboxes that are asked by one request: a page of the list."""
_SIMULTANEOUS: Final = 8
_LONGEST_ID: Final = 128
_MOST_TEXT: Final = 500
_OLD: Final = "the sandbox runs an older version that does not list its calls: new sandboxes do"


async def show_stats(request: web.Request, session: Session) -> web.Response:
    """Return what a sandbox uses now, and its samples of up to an hour."""
    async with session.box(request.match_info["id"]) as box:
        found = await box.stats()
    return web.json_response({**_now(found), "history": [_sample(one) for one in found.history]})


async def show_calls(request: web.Request, session: Session) -> web.Response:
    """Return the newest calls of a sandbox, and its MCP servers."""
    async with session.box(request.match_info["id"]) as box:
        servers = await box.list_mcp_servers()
        try:
            calls, why = await box.list_calls(), ""
        except (ToolNotFound, ProtocolMismatch):
            calls, why = [], _OLD
    rows = {"calls": [_call(one) for one in calls], "why": why}
    return web.json_response({**rows, "servers": [_server(one) for one in servers]})


async def show_use(request: web.Request, session: Session) -> web.Response:
    """Return what sandboxes use now, by id; those that do not answer are left out."""
    ids = _ids((await read_object(request)).get("ids"))
    places = asyncio.Semaphore(_SIMULTANEOUS)

    async def ask(sandbox_id: str) -> tuple[str, dict[str, Any]] | None:
        async with places:
            try:
                async with session.box(sandbox_id) as box:
                    return sandbox_id, _now(await box.stats())
            except SandmeshError:
                return None

    found = await asyncio.gather(*(ask(one) for one in dict.fromkeys(ids)))
    return web.json_response({"use": dict(filter(None, found))})


def _ids(value: object) -> list[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    ids = [entry for entry in listed if isinstance(entry, str) and 0 < len(entry) <= _LONGEST_ID]
    if not isinstance(value, list) or len(listed) > _MOST or len(ids) < len(listed):
        raise RequestError(400, f"ids is a list of at most {_MOST} ids of sandboxes")
    return ids


def _sample(sample: StatsSample) -> dict[str, Any]:
    return {
        "time": milliseconds(sample.time.timestamp()),
        "cpu": sample.cpu,
        "memory": sample.memory_bytes,
        "processes": sample.processes,
    }


def _now(found: SandboxStats) -> dict[str, Any]:
    return {
        **_sample(found),
        "disk": found.disk_bytes,
        "sent": found.sent_bytes,
        "received": found.received_bytes,
        "cores": found.cores,
        "memory_total": found.memory_total_bytes,
        "disk_total": found.disk_total_bytes,
    }


def _call(call: CallSummary) -> dict[str, Any]:
    return {
        "tool": call.tool,
        "time": milliseconds(call.started.timestamp()),
        "took": None if call.seconds is None else call.seconds * 1000,
        "reason": call.reason,
        "failed": call.is_error,
    }


def _server(server: McpServer) -> dict[str, Any]:
    return {
        "name": server.name[:_MOST_TEXT],
        "state": server.state,
        "tools": len(server.tools),
        "error": server.error[:_MOST_TEXT],
    }
