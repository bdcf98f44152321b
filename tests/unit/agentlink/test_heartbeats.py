"""When a link finds out that its agent is dead, and when it looks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.errors import SandboxLost
from sandmesh.shared import frames
from sandmeshd.agentlink.link import AgentLink, LinkChannel

SILENCE = 0.4


@asynccontextmanager
async def silent_agent() -> AsyncGenerator[AgentLink]:
    """Yield a link to an agent that says who it is, and nothing more."""
    ours, theirs = socket.socketpair()
    with theirs:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: AgentLink("one", silence=SILENCE), sock=ours)
        hello = pb.AgentHello(protocol=frames.LINK_PROTOCOL, sandbox_id="one")
        theirs.sendall(frames.pack(pb.FromAgent(hello=hello).SerializeToString()))
        await link.greeted(10)
        yield link
        link.close(now=True)
        await link.closed


async def rested(link: AgentLink) -> None:
    """Wait until a link no longer looks whether its agent lives."""
    async with asyncio.timeout(20):
        while not link.heartbeat.rests:  # noqa: ASYNC110 - a rest has no event: nobody but this test waits for it
            await asyncio.sleep(SILENCE / 8)


async def test_a_link_of_which_nothing_is_awaited_rests_and_holds() -> None:
    async with silent_agent() as link:
        await rested(link)
        assert link.open


async def test_an_agent_that_is_silent_after_a_rest_is_given_up() -> None:
    async with silent_agent() as link:
        await rested(link)
        channel = LinkChannel(link)
        assert not link.heartbeat.rests
        with pytest.raises(SandboxLost, match="does not answer"):
            async with asyncio.timeout(20):
                await channel.receive()
