"""WebSockets of clients, carried to servers inside sandboxes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, TypeAlias

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

Socket: TypeAlias = "aiohttp.ClientWebSocketResponse | web.WebSocketResponse"
_HANDSHAKE: Final = ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")


async def carry_websocket(
    session: aiohttp.ClientSession, request: web.Request, headers: CIMultiDict[str], url: URL
) -> web.StreamResponse:
    """Carry a WebSocket to a URL until either side closes it; `headers` are those of the handshake inside."""
    offered = [name.strip() for name in headers.popall("Sec-WebSocket-Protocol", []) for name in name.split(",")]
    for name in _HANDSHAKE:
        headers.popall(name, None)
    try:
        inner = await session.ws_connect(
            url, headers=headers, protocols=offered, max_msg_size=0, autoping=False, autoclose=False
        )
    except aiohttp.WSServerHandshakeError as error:
        return web.Response(status=error.status if error.status >= 400 else 502, text=error.message)
    async with inner:
        chosen = (inner.protocol,) if inner.protocol else ()
        outer = web.WebSocketResponse(protocols=chosen, max_msg_size=0, autoping=False, autoclose=False)
        await outer.prepare(request)
        await _both_ways(inner, outer)
        return outer


async def _both_ways(inner: Socket, outer: Socket) -> None:
    """Carry messages until either side closes, then close the other with the same code."""
    copying = [asyncio.create_task(_copy(inner, outer)), asyncio.create_task(_copy(outer, inner))]
    try:
        await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in copying:
            task.cancel()
        await asyncio.wait(copying)


async def _copy(source: Socket, sink: Socket) -> None:
    with suppress(ConnectionError, aiohttp.ClientError):
        while True:
            message = await source.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                await sink.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            elif message.type is aiohttp.WSMsgType.PING:
                await sink.ping(message.data)
            elif message.type is aiohttp.WSMsgType.PONG:
                await sink.pong(message.data)
            else:
                code = message.data if message.type is aiohttp.WSMsgType.CLOSE else source.close_code
                await sink.close(code=_sendable_code(code), message=(message.extra or "").encode())
                return


def _sendable_code(code: int | None) -> int:
    """Return a close code that may be sent: 1005 and 1006 only mean that there was none."""
    return code if code is not None and 1000 <= code < 5000 and code not in {1005, 1006} else 1001
