"""Finds the addresses of hosts, as every program of this machine does."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread

from sandmesh.shared.hosts import is_address


class SystemResolver:
    """Asks as every program of this machine does. Its threads are its own: slow answers hold up no other work.

    They are daemons, which no end of the process waits for.
    """

    def __init__(self, threads: int = 64) -> None:
        self._room = asyncio.Semaphore(threads)

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a name.

        Raises:
            OSError: It has none, or no server could be asked.
        """
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()
        Thread(target=self._ask, args=(host, loop, answer), name="resolver", daemon=True).start()
        return await answer

    def _ask(self, host: str, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[list[str]]) -> None:
        found: list[str] | OSError
        try:
            found = _look_up(host)
        except OSError as error:
            found = error
        except UnicodeError:
            found = OSError("it is not a name")
        # Where the loop has ended there is no waiter.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._give, answer, found)

    def _give(self, answer: asyncio.Future[list[str]], found: list[str] | OSError) -> None:
        self._room.release()
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def _look_up(host: str) -> list[str]:
    flags = socket.AI_NUMERICHOST if is_address(host) else 0
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
