"""The agent's part of the egress proxy, on the loop that agents run on."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import uvloop

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmeshd.agent.network.egress import Egress


class Link:
    """Keeps the frames that go to the driver."""

    def __init__(self) -> None:
        self.frames: list[pb.EgressFrame] = []
        self.ended = asyncio.Event()

    def write(self, frame: bytes) -> None:
        """Take a frame."""
        self.frames.append(pb.FromAgent.FromString(frame).egress)
        if self.frames[-1].HasField("ended"):
            self.ended.set()


async def _carried() -> list[pb.EgressFrame]:
    egress, link = Egress(), Link()
    egress.attach(link)
    server = await egress.listen(0)
    with socket.create_connection(server.sockets[0].getsockname()) as program:
        # All of it is there before the loop has seen the connection.
        program.sendall(b"GET / HTTP/1.1")
        program.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(20):
            await link.ended.wait()
            egress.detach(link)
            program.setblocking(False)
            with suppress(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(program, 1)
    server.close()
    await server.wait_closed()
    return link.frames


def test_what_a_program_sends_with_its_connection_is_carried() -> None:
    for new_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            frames = runner.run(_carried())
        assert [frame.WhichOneof("step") for frame in frames] == ["opened", "data", "ended"]
        assert {frame.stream for frame in frames} == {1}
        assert frames[1].data == b"GET / HTTP/1.1"
