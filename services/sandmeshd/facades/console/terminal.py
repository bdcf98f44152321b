"""Terminals of sandboxes, over WebSockets: bytes both ways, and sizes as texts."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, cast

import aiohttp
from aiohttp import web

from sandmesh import ProcessAsync
from sandmesh.errors import CallFinished, SandmeshError
from sandmesh.events import Output
from sandmesh.shared.numbers import decimal
from sandmeshd.facades.console.live import HEARTBEAT_SECONDS, first_of
from sandmeshd.facades.console.sessions import Session

_SHELL: Final = "if command -v bash >/dev/null; then exec bash; else exec sh; fi"
_MOST_INPUT: Final = 1 << 20
_MOST_SIDE: Final = 1_000


async def serve_terminal(request: web.Request, session: Session) -> web.WebSocketResponse:
    """Run a shell with a terminal until it ends or the page goes away, which ends it."""
    size = read_size(dict(request.query)) or (24, 80)
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=_MOST_INPUT)
    await socket.prepare(request)
    try:
        async with session.box(request.match_info["id"]) as box:
            start = box.processes.start(_SHELL, pty=size, env={"TERM": "xterm-256color"})
            async with await start as process:
                try:
                    await first_of(_to_page(process, socket), _from_page(socket, process), session.until_end())
                finally:
                    await _kill(process)
    except SandmeshError as error:
        await _end(socket, error.message)
    except OSError as error:
        await _end(socket, str(error))
    await socket.close()
    return socket


async def _kill(process: ProcessAsync) -> None:
    """Kill the shell, and know that it was: the end of its block is only sent, for as long as its connection lasts."""
    with suppress(SandmeshError):
        await process.kill()


def read_size(fields: dict[str, Any]) -> tuple[int, int] | None:
    """Return rows and columns, bounded; None where they are none."""
    sides = [decimal(str(fields.get(name, "")), _MOST_SIDE) for name in ("rows", "columns")]
    rows, columns = sides
    return (rows, columns) if rows and columns else None


async def _to_page(process: ProcessAsync, socket: web.WebSocketResponse) -> None:
    async for event in process:
        if isinstance(event, Output):
            await socket.send_bytes(event.data)
    result = await process.wait()
    await _end(socket, f"the shell has ended with exit code {result.exit_code}")


async def _from_page(socket: web.WebSocketResponse, process: ProcessAsync) -> None:
    async for message in socket:
        with suppress(CallFinished):
            if message.type is aiohttp.WSMsgType.BINARY:
                await process.write(cast("bytes", message.data))
            elif message.type is aiohttp.WSMsgType.TEXT:
                await _resize(process, str(message.data))


async def _resize(process: ProcessAsync, text: str) -> None:
    with suppress(ValueError, RecursionError):
        fields: object = json.loads(text)
        if isinstance(fields, dict) and (size := read_size(cast("dict[str, Any]", fields))):
            await process.resize(*size)


async def _end(socket: web.WebSocketResponse, message: str) -> None:
    with suppress(ConnectionError):
        await socket.send_str(json.dumps({"ended": message}))
