"""What waits at a kernel: requests for their turn, and a cell for a line of input."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.jupyter.messages import NotebookMessage
from sandmeshd.facades.jupyter.sockets import NotebookClient

MOST: Final = 500
MOST_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class WaitingRequest:
    """A request that waits for its turn."""

    client: NotebookClient
    message: NotebookMessage
    size: int
    number: int


class KernelQueue:
    """The requests of all clients of a kernel, in the order in which they came."""

    def __init__(self) -> None:
        self._requests: asyncio.Queue[WaitingRequest] = asyncio.Queue()
        self._bytes = self._newest = self._aborted = 0

    def put(self, client: NotebookClient, message: NotebookMessage, size: int) -> None:
        """Add a request of so many bytes.

        Raises:
            RequestError: Too many wait.
        """
        if self._requests.qsize() >= MOST or self._bytes + size > MOST_BYTES:
            raise RequestError(429, "too many requests wait: send it later")
        self._newest += 1
        self._bytes += size
        self._requests.put_nowait(WaitingRequest(client, message, size, self._newest))

    async def take(self) -> WaitingRequest:
        """Wait for the next."""
        request = await self._requests.get()
        self._bytes -= request.size
        return request

    def abort(self) -> None:
        """Abort the cells that wait."""
        self._aborted = self._newest

    def is_aborted(self, request: WaitingRequest) -> bool:
        """Return whether a request is a cell that was aborted."""
        return request.number <= self._aborted and request.message.kind == "execute_request"


class PendingInput:
    """The line that a cell waits for, of the client that ran the cell."""

    def __init__(self) -> None:
        self._line: asyncio.Future[str | None] | None = None
        self._client: NotebookClient | None = None

    def begin(self, client: NotebookClient) -> asyncio.Future[str | None]:
        """Return what becomes the line; None where there will be none."""
        self._client, self._line = client, asyncio.get_running_loop().create_future()
        return self._line

    def give(self, client: NotebookClient, line: str) -> None:
        """Pass on a line of a client, if it is the one that was asked."""
        if self._client is client and self._line is not None and not self._line.done():
            self._line.set_result(line)

    def end(self, client: NotebookClient | None = None) -> None:
        """End the wait, of this client or of any."""
        if client in {None, self._client} and self._line is not None and not self._line.done():
            self._line.set_result(None)
