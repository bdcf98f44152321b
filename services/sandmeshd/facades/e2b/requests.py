"""What clients send: keys, JSON bodies and numbers, checked."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

from aiohttp import web
from pydantic_core import from_json

from sandmesh.shared.numbers import decimal
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.tenants.shares import Shares

LARGEST_BODY: Final = 64 << 20
"""Bytes of a message to a sandbox."""

LARGEST_CONTROL_BODY: Final = 4 << 20
"""Bytes of a request's body to the control plane, which is parsed as JSON."""

MOST_BYTES: Final = 512 << 20
"""Bytes of all bodies and messages that the door has at a time; a quarter of it for one owner."""

_CHUNK: Final = 256 << 10


class Room:
    """The bytes that a request holds of what its owner's bodies and messages may have."""

    def __init__(self, shares: Shares, owner: str) -> None:
        self._shares = shares
        self._owner = owner
        self._held = 0

    async def take(self, size: int) -> None:
        """Count bytes that have arrived; where the owner has no room for more, wait.

        Raises:
            MeshUnavailable: The owner's other requests took all the room, for as long as one waits.
        """
        await self._shares.acquire(self._owner, size)
        self._held += size

    def release(self) -> None:
        """Count the bytes as gone."""
        if self._held:
            self._shares.give(self._owner, self._held)
            self._held = 0


ROOM: Final = web.RequestKey("room", Room)
"""Where what has admitted a request says for whom its bytes count."""


async def count(request: web.Request, size: int) -> None:
    """Count bytes of a request for its owner, where it is known, until they are released.

    Raises:
        MeshUnavailable: As `Room.take`.
    """
    if ROOM in request and size:
        await request[ROOM].take(size)


def release(request: web.Request) -> None:
    """Count the bytes of a request as gone."""
    if ROOM in request:
        request[ROOM].release()


def api_key(request: web.Request) -> str:
    """Return the key that a request of the control plane shows.

    Raises:
        ApiError: It shows none.
    """
    key = request.headers.get("X-API-KEY", "").strip()
    if not key:
        raise ApiError(401, "send a key as X-API-KEY: `sandmesh token create NAME --form e2b` makes one")
    return key


async def body(request: web.Request) -> AsyncGenerator[bytes]:
    """Yield a request's body as it arrives, without its compression.

    Raises:
        ApiError: It is compressed in another way than by gzip, or is damaged.
    """
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise ApiError(415, f"Content-Encoding is identity or gzip, not {encoding}")
    if encoding == "identity":
        async for chunk in request.content.iter_any():
            yield chunk
        return
    expander = zlib.decompressobj(31)
    try:
        async for chunk in request.content.iter_any():
            data = chunk
            while data:
                # A bounded piece at a time: a small body may stand for a huge one.
                yield expander.decompress(data, _CHUNK)
                data = expander.unconsumed_tail
    except zlib.error as error:
        raise ApiError(400, f"the body is not gzip: {error}") from None
    if not expander.eof:
        raise ApiError(400, "the body ends before its gzip does")


async def whole_body(request: web.Request, largest: int = LARGEST_CONTROL_BODY) -> bytes:
    """Return a request's body.

    Raises:
        ApiError: It has more than `largest` bytes.
        MeshUnavailable: Its owner has as many bytes of bodies as one may.
    """
    whole = bytearray()
    async for chunk in body(request):
        if len(whole) + len(chunk) > largest:
            raise ApiError(413, f"a body has at most {largest} bytes")
        await count(request, len(chunk))
        whole += chunk
    return bytes(whole)


def json_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; nothing at all is an empty one.

    Raises:
        ApiError: It is something else.
    """
    try:
        found: object = from_json(data or b"{}", allow_inf_nan=False)
    except ValueError:
        raise ApiError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not a JSON object")
    return cast("dict[str, Any]", found)


def texts(found: dict[str, Any], name: str) -> dict[str, str]:
    """Return a field that is a mapping of texts to texts.

    Raises:
        ApiError: It is something else.
    """
    value: object = found.get(name) or {}
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        if all(isinstance(one, str) for pair in pairs.items() for one in pair):
            return cast("dict[str, str]", pairs)
    raise ApiError(400, f"{name} is an object of strings")


def text(found: dict[str, Any], name: str, default: str = "") -> str:
    """Return a field that is a text.

    Raises:
        ApiError: It is something else.
    """
    value: object = found.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ApiError(400, f"{name} is a string")
    return value


def natural(value: object, name: str, most: int = 1 << 31) -> int:
    """Return a number that is not negative, from JSON or a query.

    Raises:
        ApiError: It is something else.
    """
    if isinstance(value, bool):
        number = None
    elif isinstance(value, int):
        number = value if 0 <= value <= most else None
    else:
        number = decimal(value, most) if isinstance(value, str) else None
    if number is None:
        raise ApiError(400, f"{name} is a whole number from 0 to {most}")
    return number
