"""Commands to the store with little overhead: every claim of a sandbox waits for one.

redis-py does a good deal before and after each command, and makes a task of each send to give it a timeout.
"""

from __future__ import annotations

from typing import Any, Final, cast

from redis.asyncio import Redis

_KEPT: Final = 2
"""How many connections are kept from redis-py's own pool, of those that it may open."""


class CommandRunner:
    """Run commands whose results need no conversion, with the timeouts and retries of a client."""

    def __init__(self, client: Redis) -> None:
        # redis-py's own signatures are partly untyped.
        self._pool = cast("Any", client).connection_pool
        # A waiter in the pool gets none of these: two are left to it, for notifications and for everything else.
        self._most = min(_KEPT, self._pool.max_connections - 2)
        self._idle: list[Any] = []

    async def execute(self, *arguments: str | int | bytes) -> object:
        """Send a command and return its result.

        Raises:
            RedisError: As redis-py's own clients.
        """
        connection = await self._connection()

        async def send() -> object:
            await connection.send_command(*arguments)
            return await connection.read_response()

        async def failed(_: Exception) -> None:
            await connection.disconnect()

        try:
            return await connection.retry.call_with_retry(send, failed)
        finally:
            if connection.is_connected and len(self._idle) < self._most:
                self._idle.append(connection)
            else:
                await self._pool.release(connection)

    async def _connection(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            # An idle connection has nothing to read: data means that it was closed.
            if connection.is_connected and not await connection.can_read():
                return connection
            await connection.disconnect()
            await self._pool.release(connection)
        return await self._pool.get_connection()


def fast_connection(base: Any) -> Any:
    """Return a subclass of a redis-py connection that writes immediately where its buffer is empty."""

    class FastConnection(base):  # type: ignore[misc]  # the base depends on the store's address
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            if self.is_connected and isinstance(command, list) and not self._writer.transport.get_write_buffer_size():
                self._writer.writelines(command)
            else:
                plain: Any = super()
                await plain.send_packed_command(command, check_health)

    return FastConnection
