"""What changes, as it changes: the list of sandboxes and the newest events, over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, Final

import aiohttp
from aiohttp import web

from sandmesh.errors import MethodNotFound, NotFound, SandmeshError, Unauthenticated
from sandmesh.mesh import SandboxEvent
from sandmeshd.facades.console.older import NO_EVENTS
from sandmeshd.facades.console.records import event_row, sandbox_row
from sandmeshd.facades.console.sessions import Session

HEARTBEAT_SECONDS: Final = 30.0
_ROUND_SECONDS: Final = 0.25
"""How long changes are collected before they are sent."""
_AGAIN_SECONDS: Final = 2.0
_FEW: Final = 32
"""Up to so many changed sandboxes are read one by one; beyond, and a tenth of all, the list is read."""
_EVENTS: Final = 200
ENDED_SESSION: Final = 4401


async def follow(request: web.Request, session: Session) -> web.WebSocketResponse:
    """Send the list of sandboxes, then what changes in it, until the page goes away."""
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=1024)
    await socket.prepare(request)
    await first_of(read_nothing(socket), _Live(session, socket).run(), session.until_end())
    await socket.close(code=ENDED_SESSION)
    return socket


async def first_of(*works: Awaitable[None]) -> None:
    """Run until one ends, and end the others; what it raised is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()


async def read_nothing(socket: web.WebSocketResponse) -> None:
    """Read until the page closes its end."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.ERROR:
            return


class _Live:
    def __init__(self, session: Session, socket: web.WebSocketResponse) -> None:
        self._session = session
        self._socket = socket
        self._events: list[SandboxEvent] = []
        self._arrived = asyncio.Event()
        self._known: set[str] = set()
        self._only = session.principal.sandbox_id or None
        """The one sandbox that a token of the scope sandbox shows."""

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except Unauthenticated as error:
                await self._socket.close(code=ENDED_SESSION, message=error.reason.encode())
                return
            except MethodNotFound:
                await self._send_all()
                await self._send("older", message=NO_EVENTS)
                await asyncio.sleep(_AGAIN_SECONDS)
            except SandmeshError as error:
                await self._send("away", message=error.message)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _follow(self) -> None:
        newest = await self._session.mesh.events.list(self._only, limit=_EVENTS)
        self._events.clear()
        await self._send_all()
        await self._send("events", events=[event_row(event) for event in newest], whole=True)
        after = newest[-1].event_id if newest else "0-0"
        await first_of(self._collect(after), self._pass_on())

    async def _collect(self, after: str) -> None:
        async with self._session.mesh.events.follow(self._only, after=after) as events:
            async for event in events:
                self._events.append(event)
                self._arrived.set()

    async def _pass_on(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(_ROUND_SECONDS)
            self._arrived.clear()
            events, self._events = self._events, []
            await self._send("events", events=[event_row(event) for event in events[-_EVENTS:]])
            changed = {event.sandbox_id for event in events if event.sandbox_id}
            if len(changed) > max(_FEW, len(self._known) // 10):
                await self._send_all()
            elif changed:
                await self._send_changed(changed)

    async def _send_all(self) -> None:
        if self._only is None:
            rows = [sandbox_row(one) for one in await self._session.mesh.sandboxes.list()]
        else:
            row = await self._row(self._only)
            rows = [] if row is None else [row]
        self._known = {row["id"] for row in rows}
        await self._send("all", sandboxes=rows)

    async def _send_changed(self, changed: set[str]) -> None:
        rows = await asyncio.gather(*(self._row(sandbox_id) for sandbox_id in changed))
        found = [row for row in rows if row is not None]
        there = {row["id"] for row in found}
        self._known = self._known - changed | there
        await self._send("changed", sandboxes=found, gone=sorted(changed - there))

    async def _row(self, sandbox_id: str) -> dict[str, Any] | None:
        try:
            return sandbox_row(await self._session.mesh.sandboxes.get(sandbox_id))
        except NotFound:
            return None

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send_str(json.dumps({"type": kind, **fields}, ensure_ascii=False))
