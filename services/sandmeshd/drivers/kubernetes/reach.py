"""How agents are reached: at their pods' addresses, or through the API server, by sockets of this machine.

A socket is one sandbox's. Each connection to it is one WebSocket to the API server, which carries the bytes as they
are: TLS ends at the agent, whose certificate is pinned, so that an attacker can neither read along nor answer for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType

from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.addresses import forwarded_endpoint
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from sandmeshd.runtime.paths import make_private

CHUNK_BYTES: Final = 1 << 16
DATA, ERROR = 0, 1
"""The channels of a port: the first byte of each message."""

log = structlog.get_logger()


class PodReach:
    """The way to the agents of one mesh."""

    def __init__(self, cluster: Cluster, directory: Path | None) -> None:
        """`directory` is where the sockets are; None: the pods' own addresses are reached."""
        self._cluster = cluster
        self._directory = directory
        self._servers: dict[str, asyncio.Server] = {}
        self._connections: dict[str, set[asyncio.Task[None]]] = {}

    @property
    def forwards(self) -> bool:
        """Whether agents are reached through the API server."""
        return self._directory is not None

    def endpoint(self, name: str, endpoint: str) -> str:
        """Return where the agent of a pod is reached whose own address is `endpoint`."""
        if self._directory is None or not endpoint:
            return endpoint
        return forwarded_endpoint(endpoint, str(self._directory / name))

    def plain_endpoint(self, name: str, endpoint: str) -> str:
        """Return where the agent is reached that speaks no TLS yet, and will do so at `endpoint`."""
        if self._directory is None:
            return f"tcp{endpoint.removeprefix('tls').partition('?')[0]}"
        return f"unix://{self._directory / name}"

    async def open(self, name: str, pod: str = "") -> None:
        """Make the agent of a sandbox reachable, until `close`; `pod` is its pod, where that has another name.

        Raises:
            OSError: Its socket cannot be made.
        """
        if self._directory is None or name in self._servers:
            return
        make_private(self._directory, 0o700)
        path = self._directory / name
        path.unlink(missing_ok=True)
        self._connections[name] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._forward(pod or name, reader, writer))
            self._connections[name].add(task)
            task.add_done_callback(self._connections[name].discard)

        self._servers[name] = await asyncio.start_unix_server(accept, path)

    async def close(self, name: str) -> None:
        """End the way to a pod, with all connections."""
        server = self._servers.pop(name, None)
        if server is None or self._directory is None:
            return
        server.close()
        connections = self._connections.pop(name)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        (self._directory / name).unlink(missing_ok=True)

    async def close_all(self) -> None:
        """End the ways to all pods."""
        for name in list(self._servers):
            await self.close(name)
        if self._directory is not None:
            with suppress(OSError):
                self._directory.rmdir()

    async def _forward(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._cluster.port_forward(name, AGENT_PORT) as socket:
                sending = asyncio.create_task(_send(reader, socket))
                try:
                    await _receive(name, socket, writer)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        except SandmeshError as error:
            log.warning("a connection to an agent was not forwarded", pod=name, reason=error.message)
        except (OSError, ClientError) as error:
            log.info("a connection to an agent broke off", pod=name, reason=str(error))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _send(reader: asyncio.StreamReader, socket: ClientWebSocketResponse) -> None:
    while data := await reader.read(CHUNK_BYTES):
        await socket.send_bytes(bytes((DATA,)) + data)
    # Half of a connection cannot be closed.
    await socket.close()


async def _receive(name: str, socket: ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    begun: set[int] = set()
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in begun:
            # The port's number comes first.
            begun.add(channel)
        elif channel == ERROR:
            log.warning("the API server could not forward a port", pod=name, reason=data.decode("utf-8", "replace"))
            return
        elif channel == DATA:
            writer.write(data)
            await writer.drain()
