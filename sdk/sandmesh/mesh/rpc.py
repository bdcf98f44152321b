"""How the parts of a client send requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from google.protobuf.message import Message

from sandmesh._client.connection import Connection
from sandmesh._client.transport import Choose

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
R = TypeVar("R")


@dataclass(frozen=True)
class Rpc:
    """The connection of a client, and the seconds that a request may take."""

    connection: Callable[[], Connection]
    timeout: float

    async def send(self, choose: Choose[Q, A], request: Q, timeout: float | None = None) -> A:
        """Send a unary request and return its response."""
        return await self.connection().ask(choose, request, timeout or self.timeout)


class Subscription(AsyncIterator[R], Generic[R]):
    """Items as they arrive, from the first `anext` until it is closed."""

    def __init__(self, items: AsyncGenerator[R]) -> None:
        self._items = items

    async def __anext__(self) -> R:
        """Wait for the next item."""
        return await anext(self._items)

    async def take(self) -> list[R]:
        """Wait for the next item and return it in a list; an empty list is the end."""
        async for item in self._items:
            return [item]
        return []

    async def aclose(self) -> None:
        """End the subscription."""
        await self._items.aclose()

    async def __aenter__(self) -> Self:
        """Return the subscription; the block's end closes it."""
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """End the subscription."""
        await self.aclose()
