"""The connections of one MCP session to the MCP servers of its sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sandmesh import SandboxAsync, SandmeshError
from sandmesh.sandbox.mcp.connection import McpConnectionAsync
from sandmeshd.facades.mcp.client_messages import ClientMessages


class SandboxConnections:
    """One connection for each sandbox. Servers that start while it is open know what the client handles."""

    def __init__(self) -> None:
        self.messages = ClientMessages()
        self._open: dict[str, McpConnectionAsync] = {}

    async def open(self, box: SandboxAsync) -> McpConnectionAsync:
        """Return the connection to the servers of a sandbox, those that are there and those to come.

        Raises:
            SandmeshError: The sandbox cannot be reached.
        """
        connection = self._open.get(box.sandbox_id)
        if connection is None or not connection.is_open:
            messages = self.messages
            handlers = (messages.on_request, messages.on_notification)
            connection = self._open[box.sandbox_id] = await box.connect_mcp(messages.capabilities, *handlers)
        return connection

    async def close(self, box: SandboxAsync) -> None:
        """Disconnect from the servers of a sandbox."""
        connection = self._open.pop(box.sandbox_id, None)
        if connection is not None:
            await connection.aclose()

    async def set_level(self, box: SandboxAsync, servers: Iterable[str]) -> None:
        """Pass the client's level of logging to servers; those that log nothing refuse it."""
        level = self.messages.level
        if level is not None:
            connection = await self.open(box)
            requests = (connection.request(server, "logging/setLevel", {"level": level}) for server in servers)
            failures = await asyncio.gather(*requests, return_exceptions=True)
            for failure in failures:
                if isinstance(failure, BaseException) and not isinstance(failure, SandmeshError):
                    raise failure
