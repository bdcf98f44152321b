"""Finds the addresses of hosts."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from sandmesh._hosts import is_address

_THREADS = 64


class Resolver(Protocol):
    """Gives a host's addresses, asked once for each connection."""

    async def addresses(self, host: str) -> list[str]:
        """Give the addresses of a name, the preferred one first.

        Raises:
            OSError: It has none, or nobody could be asked.
        """
        ...


class SystemResolver:
    """Asks as every program of this machine does. Its threads are its own: slow answers hold up nobody else's work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "egress-resolver")

    async def addresses(self, host: str) -> list[str]:
        """Give the addresses of a name.

        Raises:
            OSError: It has none, or nobody could be asked.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host)

    def close(self) -> None:
        """End its threads; who still waits for an answer is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> list[str]:
    flags = socket.AI_NUMERICHOST if is_address(host) else 0
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
