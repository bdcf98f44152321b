"""The Connect protocol with JSON, by https://connectrpc.com/docs/protocol: single messages and streams of envelopes."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator
from typing import Any, Final

from aiohttp import web

from sandmesh.shared.numbers import decimal
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.requests import LARGEST_BODY, count, json_object, release, whole_body

UNARY: Final = "application/json"
STREAM: Final = "application/connect+json"
_COMPRESSED, _LAST = 0x01, 0x02
_HEAD: Final = struct.Struct(">BI")
_KEEPALIVE_SECONDS: Final = 50.0
_LONGEST_KEEPALIVE: Final = 86_400


async def read_message(request: web.Request) -> dict[str, Any]:
    """Read the message of a unary request, or the first of a stream.

    Raises:
        ApiError: It is malformed, or not JSON.
    """
    if request.content_type == UNARY:
        return json_object(await whole_body(request, LARGEST_BODY))
    async for message in read_messages(request):
        # The stream may go on for hours: what began it no longer counts.
        release(request)
        return message
    raise ApiError(400, "the stream has no message")


async def read_messages(request: web.Request) -> AsyncGenerator[dict[str, Any]]:
    """Read the messages of a stream.

    Raises:
        ApiError: An envelope is malformed, too large or not JSON.
        MeshUnavailable: Its owner has as many bytes of messages as one may.
    """
    if request.content_type != STREAM:
        raise ApiError(415, f"the content type is {UNARY} or {STREAM}: send JSON, not {request.content_type}")
    while True:
        head = await _read(request, _HEAD.size)
        if not head:
            return
        flags, size = _HEAD.unpack(head)
        if size > LARGEST_BODY:
            raise ApiError(413, f"a message has at most {LARGEST_BODY} bytes")
        if flags & _COMPRESSED:
            raise ApiError(400, "messages of a stream come without compression here")
        await count(request, size)
        data = await _read(request, size)
        if flags & _LAST:
            return
        yield json_object(data)
        release(request)


async def _read(request: web.Request, size: int) -> bytes:
    try:
        return await request.content.readexactly(size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ApiError(400, "the stream ends within an envelope") from None
        return b""


def reply(message: dict[str, Any]) -> web.Response:
    """Return the answer of a unary request."""
    return web.json_response(message)


def refuse(error: ApiError) -> web.Response:
    """Return the refusal of a unary request."""
    return web.json_response(error.connect_error, status=error.status, headers=error.headers)


def timeout_seconds(request: web.Request) -> float | None:
    """Return the time that a request has; None where it says none.

    Raises:
        ApiError: It is not a number.
    """
    text = request.headers.get("Connect-Timeout-Ms", "")
    if not text:
        return None
    number = decimal(text, 9_999_999_999)
    if number is None or len(text) > 10:
        raise ApiError(400, "connect-timeout-ms is a number of at most ten digits")
    return number / 1000 or None


def keepalive_seconds(request: web.Request) -> float:
    """Return after how long without a message a stream gets one that says nothing."""
    text = request.headers.get("Keepalive-Ping-Interval", "")
    return float(decimal(text, _LONGEST_KEEPALIVE) or _KEEPALIVE_SECONDS)


class ResponseStream:
    """The stream of answers to one request."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": STREAM, "Cache-Control": "no-store"})

    async def open(self) -> None:
        """Send the head; refusals come within the stream from then on."""
        await self._response.prepare(self._request)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message; wait while the client does not read."""
        data = json.dumps(message, separators=(",", ":")).encode()
        await self._response.write(_HEAD.pack(0, len(data)) + data)

    async def end(self, error: ApiError | None = None) -> web.StreamResponse:
        """End the stream."""
        data = json.dumps({} if error is None else {"error": error.connect_error}).encode()
        await self._response.write(_HEAD.pack(_LAST, len(data)) + data)
        await self._response.write_eof()
        return self._response

    def abort(self) -> web.StreamResponse:
        """Break the connection, as it is when a sandbox is killed: clients then look whether the sandbox is there."""
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._response
