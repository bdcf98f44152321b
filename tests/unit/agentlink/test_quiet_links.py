"""Links that say nothing for long, to agents elsewhere."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import SandboxLost
from sandmesh.shared import frames
from sandmeshd.agentlink import connection
from sandmeshd.agentlink.link import AgentLink
from tests.engine import run

ALONE = ("unshare", "--user", "--map-root-user", "--net", sys.executable, "-m", __name__)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    hello = pb.AgentHello(protocol=frames.LINK_PROTOCOL, sandbox_id="one")
    writer.write(frames.pack(pb.FromAgent(hello=hello).SerializeToString()))
    await reader.read()
    writer.close()


async def lose_network() -> None:
    """Open a link in a network of its own, take that away, and return when the link ended."""
    server = await asyncio.start_server(_greet, "127.0.0.1", 0)
    endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = await connection.connect(endpoint, lambda: AgentLink("one"), "token", 5.0)
    await asyncio.to_thread(run, "ip", "link", "set", "lo", "down")
    assert link.open
    await link.closed
    assert isinstance(link.error, SandboxLost)


def test_a_quiet_link_whose_other_end_is_out_of_reach_is_ended_by_the_kernel() -> None:
    found = subprocess.run(ALONE, check=False, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr


async def test_a_link_over_a_network_is_asked_for_by_the_kernel() -> None:
    server = await asyncio.start_server(_greet, "127.0.0.1", 0)
    async with server:
        transports: list[asyncio.BaseTransport] = []

        class Watched(AgentLink):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transports.append(transport)
                super().connection_made(transport)

        endpoint = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        link = await connection.connect(endpoint, lambda: Watched("one"), "token", 5.0)
        made: socket.socket = transports[0].get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [made.getsockopt(socket.IPPROTO_TCP, option) for option, _ in connection.KEEPALIVE] == [30, 5, 3]
        link.close(now=True)
        await link.closed


if __name__ == "__main__":
    run("ip", "link", "set", "lo", "up")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "KEEPALIVE", tuple((option, 1) for option, _ in connection.KEEPALIVE))
        asyncio.run(asyncio.wait_for(lose_network(), 30))
