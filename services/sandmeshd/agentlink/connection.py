"""Connections to agents, each checked to be the agent that is meant before a word is sent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost, SandmeshError
from sandmeshd.agentlink.addresses import read_address
from sandmeshd.agentlink.link import AgentLink, LinkChannel, request
from sandmeshd.agentlink.websocket import open_websocket

TIMEOUT_SECONDS = 5.0
GOODBYE_SECONDS = 1.0
HESITATION_SECONDS = 0.3
"""How long an agent elsewhere may be silent on a link that was kept open, before another is opened."""
REDIAL_SECONDS = 3.0
"""How long that may take, of an agent of which it is likely that it is gone."""

KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
"""The kernel finds out within 45 s that a quiet link leads nowhere, and nothing between forgets one that leads on."""


async def connect(endpoint: str, link: Callable[[], AgentLink], agent_token: str, timeout: float) -> AgentLink:
    """Connect to an agent's endpoint, as `read_address` reads it, and exchange hellos.

    Raises:
        SandboxLost: Nothing answers there.
        ProtocolMismatch: The agent speaks another protocol.
    """
    try:
        async with asyncio.timeout(timeout):
            made = await _dial(endpoint, link)
    except (OSError, TimeoutError) as error:
        raise SandboxLost("the sandbox's agent does not answer", {"detail": str(error) or "timeout"}) from None
    try:
        made.send_hello(agent_token)
        await made.greeted(timeout)
    except BaseException:
        made.close()
        raise
    return made


async def connect_sandbox(sandbox: pb.RuntimeSandbox) -> AgentLink:
    """Connect to a sandbox's agent; the caller closes the link.

    Raises:
        SandboxLost, ProtocolMismatch: As `connect`.
    """
    return await connect(sandbox.endpoint, lambda: AgentLink(sandbox.sandbox_id), sandbox.agent_token, TIMEOUT_SECONDS)


@asynccontextmanager
async def open_link(sandbox: pb.RuntimeSandbox, timeout: float | None = TIMEOUT_SECONDS) -> AsyncGenerator[AgentLink]:
    """Open a link to a sandbox's agent and use it for at most `timeout` seconds; None: for as long as it holds.

    Raises:
        SandboxLost: Nothing answers there, now or before the block ends.
        ProtocolMismatch: The agent speaks another protocol.
    """
    with _lost(sandbox):
        async with asyncio.timeout(timeout), AsyncExitStack() as stack:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                link = await stack.enter_async_context(_dialled(sandbox))
                link.send_hello(sandbox.agent_token)
                await link.greeted(TIMEOUT_SECONDS)
            yield link


@asynccontextmanager
async def installing_token(
    sandbox: pb.RuntimeSandbox, fencing_token: int, link: AgentLink | None = None, record: bytes = b""
) -> AsyncGenerator[None]:
    """Make a sandbox's agent refuse every lower fencing token: sent before the block, answered when it has ended.

    `link` is one that is open already; it is closed in any case. Where it leads to an agent elsewhere and nothing
    comes back, another is opened. With `record` the agent keeps that from then on.

    Raises:
        SandboxLost: It does not answer.
        LeaseLost: A higher one is in force.
    """
    renewed = agent_pb2.ToAgent(install_token=agent_pb2.InstallToken(fencing_token=fencing_token, record=record))
    async with AsyncExitStack() as stack:
        kept = link is not None and bool(read_address(sandbox.endpoint).pin)
        if link is None:
            link = await _greeted(sandbox, stack, TIMEOUT_SECONDS)
        else:
            stack.callback(link.close, now=True)
        channel = LinkChannel(link)
        channel.send(renewed)
        yield
        if kept:
            if await _is_answered(channel, link):
                return
            link = await _greeted(sandbox, stack, REDIAL_SECONDS)
            channel = LinkChannel(link)
            # An agent that took it before takes it again.
            channel.send(renewed)
        with _lost(sandbox):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await link.greeted(TIMEOUT_SECONDS)
                await channel.receive()


async def _greeted(sandbox: pb.RuntimeSandbox, stack: AsyncExitStack, timeout: float) -> AgentLink:
    """Open a link for what is sent along with the hello: an agent that refuses the one does not look at the other."""
    with _lost(sandbox):
        async with asyncio.timeout(timeout):
            link = await stack.enter_async_context(_dialled(sandbox))
            link.send_hello(sandbox.agent_token)
            return link


async def _is_answered(channel: LinkChannel, link: AgentLink) -> bool:
    """Wait a moment for the answer on a link that was quiet for long; end the link where none comes.

    Raises:
        SandmeshError: What the agent refuses.
    """
    try:
        async with asyncio.timeout(HESITATION_SECONDS):
            await channel.receive()
    except TimeoutError:
        pass
    except SandmeshError:
        if link.error is None:
            raise
    else:
        return True
    link.close(now=True)
    return False


async def read_record(sandbox: pb.RuntimeSandbox) -> bytes:
    """Return the record that a sandbox's agent keeps for its driver, empty where it keeps none.

    Only the token shows which sandbox is meant, where its id is not known any more.

    Raises:
        SandboxLost, ProtocolMismatch: As `connect`.
    """
    async with open_link(sandbox) as link:
        frame = agent_pb2.ToAgent(read_record=agent_pb2.ReadRecord())
        return (await request(link, frame, TIMEOUT_SECONDS)).record


@contextmanager
def _lost(sandbox: pb.RuntimeSandbox) -> Generator[None]:
    try:
        yield
    except (OSError, EOFError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise SandboxLost(f"the agent of {sandbox.sandbox_id} does not answer", {"detail": detail}) from None


@asynccontextmanager
async def _dialled(sandbox: pb.RuntimeSandbox) -> AsyncGenerator[AgentLink]:
    link = await _dial(sandbox.endpoint, lambda: AgentLink(sandbox.sandbox_id))
    try:
        yield link
    finally:
        link.close()
        if read_address(sandbox.endpoint).tls is not None:
            # The other end of a TLS connection closes it too, and is not waited for long.
            _, late = await asyncio.wait([link.closed], timeout=GOODBYE_SECONDS)
            if late:
                link.close(now=True)
                await link.closed


async def _dial(endpoint: str, link: Callable[[], AgentLink]) -> AgentLink:
    loop, address = asyncio.get_running_loop(), read_address(endpoint)
    if address.target:
        return await open_websocket(address, link())
    if address.path:
        name = "" if address.pin else None
        transport, made = await loop.create_unix_connection(link, address.path, ssl=address.tls, server_hostname=name)
    else:
        transport, made = await loop.create_connection(link, address.host, address.port, ssl=address.tls)
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    try:
        address.check(transport)
    except ConnectionError:
        transport.abort()
        raise
    return made
