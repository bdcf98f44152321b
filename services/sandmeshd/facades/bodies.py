"""Bodies of requests, whose bytes count for their owner while the door has them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from aiohttp import web
from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import from_json

from sandmeshd.facades.answers import RequestError
from sandmeshd.tenants.shares import Shares

MOST: Final = 512 << 20
"""Bytes of all bodies that one door has at a time; a quarter of it for one owner."""


class Fields(BaseModel):
    """A request's fields. One that the door does not know is refused: a client that sets it would take it for done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, found: object) -> object:
        """Leave out unknown fields that say nothing: newer clients send what they do not use."""
        if not isinstance(found, dict):
            return found
        fields = cast("dict[str, object]", found)
        return {name: value for name, value in fields.items() if value or name in cls.model_fields}


class Bodies:
    """The bodies that a door has, each at most `largest` bytes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._shares = Shares("bytes of request bodies", MOST)

    @asynccontextmanager
    async def read(self, request: web.Request, owner: str) -> AsyncGenerator[bytes]:
        """Yield a request's body. What arrived of it counts; where its owner has no room for more, it waits.

        Raises:
            RequestError: It is too large.
            MeshUnavailable: Its owner's other bodies took all the room, for as long as one waits.
        """
        self._check(request.content_length or 0)
        whole = bytearray()
        try:
            async for chunk in request.content.iter_any():
                self._check(len(whole) + len(chunk))
                await self._shares.acquire(owner, len(chunk))
                whole += chunk
            yield bytes(whole)
        finally:
            if whole:
                self._shares.give(owner, len(whole))

    def _check(self, size: int) -> None:
        if size > self._largest:
            raise RequestError(413, f"a request has at most {self._largest} bytes")


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return a body that is a JSON object, as large as the application takes it.

    Raises:
        RequestError: It is something else.
    """
    try:
        # Unlike the standard library's it bounds how deep a text may be, and refuses halves of characters.
        found: object = from_json(await request.read(), allow_inf_nan=False)
    except ValueError:
        raise RequestError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise RequestError(400, "the body is not an object")
    return cast("dict[str, Any]", found)
