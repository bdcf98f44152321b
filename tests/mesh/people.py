"""A person who watches and takes over by the gateway's own requests, without a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sandmesh import ToolResult

VIEWER = "a" * 32


class Person:
    """A viewer that speaks to the gateway itself."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def control(self, action: str) -> dict[str, Any]:
        """Take over, hand back or ask."""
        async with self._session.post(f"{self._url}control?viewer={VIEWER}", data=action) as answer:
            found: dict[str, Any] = await answer.json()
            return found


@asynccontextmanager
async def watching(url: str) -> AsyncGenerator[Person]:
    """Watch what a URL shows."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}websocket?viewer={VIEWER}") as socket,
    ):
        await socket.receive_bytes()
        yield Person(session, url)


async def interrupted(person: Person, call: Coroutine[Any, Any, ToolResult]) -> str:
    """Take over while a call is under way, once viewers are told of it, and return what it answers."""
    under_way = asyncio.create_task(call)
    async with asyncio.timeout(60):
        while not (await person.control("show"))["acting"]:
            pass
    await asyncio.sleep(0.3)  # a moment into its wait
    assert (await person.control("take"))["holder"] == "you"
    ended = await under_way
    assert ended.is_error
    return ended.text


async def quiet(person: Person) -> None:
    """Wait until viewers are not told any more that the agent acts."""
    async with asyncio.timeout(60):
        while (await person.control("show"))["acting"]:
            pass
