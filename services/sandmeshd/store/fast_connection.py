"""Commands to the store with as little between as can be: every claim of a sandbox waits for one.

redis-py looks at a good deal before and after each command, and makes a task of each send to give it a time limit.
"""

from __future__ import annotations

from typing import Any, Final, cast

from redis.asyncio import Redis

_KEPT: Final = 2
"""How many connections are kept from redis-py's own pool, of those that it may open."""


class Prompt:
    """Runs commands whose answers need no translation, with the time limits and retries of a client."""

    def __init__(self, client: Redis) -> None:
        # redis-py's own signatures are partly untyped.
        self._pool = cast("Any", client).connection_pool
        # Who waits for one of the pool is given none of these: two are left to it, for notices and for all else.
        self._most = min(_KEPT, self._pool.max_connections - 2)
        self._idle: list[Any] = []

    async def execute(self, *words: str | int | bytes) -> object:
        """Send a command and give its answer.

        Raises:
            RedisError: As redis-py's own clients.
        """
        connection = await self._taken()

        async def ask() -> object:
            await connection.send_command(*words)
            return await connection.read_response()

        async def failed(_: Exception) -> None:
            await connection.disconnect()

        try:
            return await connection.retry.call_with_retry(ask, failed)
        finally:
            if connection.is_connected and len(self._idle) < self._most:
                self._idle.append(connection)
            else:
                await self._pool.release(connection)

    async def _taken(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            # Nothing is to be read where nothing was asked: what is there says that it was closed.
            if connection.is_connected and not await connection.can_read():
                return connection
            await connection.disconnect()
            await self._pool.release(connection)
        return await self._pool.get_connection()


def prompt(kind: Any) -> Any:
    """Give a kind of redis-py's connections that sends at once where nothing that was sent before holds it back."""

    class PromptConnection(kind):  # type: ignore[misc]  # the kind depends on the store's address
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            if self.is_connected and isinstance(command, list) and not self._writer.transport.get_write_buffer_size():
                self._writer.writelines(command)
            else:
                plain: Any = super()
                await plain.send_packed_command(command, check_health)

    return PromptConnection
