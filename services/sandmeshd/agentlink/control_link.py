"""What a driver says to an agent, over the framed link of agent.proto: a new fencing token, what egress brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import ProtocolMismatch, SandboxLost, from_detail
from sandmesh.shared import frames
from sandmeshd.agentlink.addresses import AgentAddress, read_address

PATIENCE_SECONDS = 5.0
GOODBYE_SECONDS = 1.0


class AgentLink:
    """An open link; one question at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_over(self) -> bool:
        """Whether the agent closed it."""
        return self._reader.at_eof()

    def close(self) -> None:
        """Close it."""
        self._writer.close()

    async def ask(self, frame: agent_pb2.ToAgent) -> agent_pb2.FromAgent:
        """Send a frame and give the first answer on its channel.

        Raises:
            SandmeshError: The agent refused: its own error.
        """
        async with aclosing(self.answers(frame)) as answers:
            return await anext(answers)

    async def answers(self, frame: agent_pb2.ToAgent) -> AsyncGenerator[agent_pb2.FromAgent]:
        """Send a frame and give every answer on its channel, to the final one.

        Raises:
            SandmeshError: The agent refused: its own error.
        """
        await self.send(frame)
        final = False
        while not final:
            answer = await self.receive()
            if answer.channel == frame.channel:
                if answer.HasField("error"):
                    raise from_detail(answer.error)
                yield answer
                final = answer.final

    async def send(self, *messages: agent_pb2.ToAgent) -> None:
        """Send messages together; return when the link has room for more."""
        for data in [message.SerializeToString() for message in messages]:
            self._writer.write(frames.pack(data))
        await self._writer.drain()

    async def receive(self) -> agent_pb2.FromAgent:
        """Give the next frame, whatever its channel.

        Raises:
            ProtocolMismatch: It is none.
            EOFError: The agent is gone.
        """
        try:
            return agent_pb2.FromAgent.FromString(await frames.read(self._reader, frames.MAX_LINK_MESSAGE))
        except frames.FrameTooLarge as error:
            raise ProtocolMismatch(f"the agent broke the protocol: {error}") from None
        except DecodeError:
            raise ProtocolMismatch("the agent sent what is no frame") from None


@asynccontextmanager
async def open_link(sandbox: pb.RuntimeSandbox, patience: float = PATIENCE_SECONDS) -> AsyncGenerator[AgentLink]:
    """Open a link to a sandbox's agent, check that it is that sandbox's, and use it for at most `patience` seconds.

    Raises:
        SandboxLost: Nothing answers there, now or before the block ends.
        ProtocolMismatch: The agent speaks another protocol, or is another sandbox's.
    """
    with _lost(sandbox):
        async with asyncio.timeout(patience), _opened(sandbox) as link:
            yield link


@asynccontextmanager
async def held_link(sandbox: pb.RuntimeSandbox) -> AsyncGenerator[AgentLink]:
    """Open a link as `open_link` does, to be used for as long as it holds.

    Raises:
        SandboxLost: Nothing answers there, now or before the block ends.
        ProtocolMismatch: The agent speaks another protocol, or is another sandbox's.
    """
    with _lost(sandbox):
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(PATIENCE_SECONDS):
                link = await stack.enter_async_context(_opened(sandbox))
            yield link


async def connected(sandbox: pb.RuntimeSandbox) -> AgentLink:
    """Open a link as `open_link` does, which the caller closes.

    Raises:
        SandboxLost: Nothing answers there.
        ProtocolMismatch: The agent speaks another protocol, or is another sandbox's.
    """
    with _lost(sandbox):
        async with asyncio.timeout(PATIENCE_SECONDS):
            link = AgentLink(*await _connect(read_address(sandbox.endpoint)))
            try:
                await _greet(link, sandbox)
            except BaseException:
                link.close()
                raise
            return link


@contextmanager
def _lost(sandbox: pb.RuntimeSandbox) -> Generator[None]:
    try:
        yield
    except (OSError, EOFError, TimeoutError) as error:
        detail = str(error) or type(error).__name__
        raise SandboxLost(f"the agent of {sandbox.sandbox_id} does not answer", {"detail": detail}) from None


@asynccontextmanager
async def _opened(sandbox: pb.RuntimeSandbox) -> AsyncGenerator[AgentLink]:
    async with _connected(sandbox) as link:
        await _greet(link, sandbox)
        yield link


@asynccontextmanager
async def _connected(sandbox: pb.RuntimeSandbox) -> AsyncGenerator[AgentLink]:
    address = read_address(sandbox.endpoint)
    reader, writer = await _connect(address)
    try:
        yield AgentLink(reader, writer)
    finally:
        writer.close()
        if address.pin:
            await _part(writer)


async def _part(writer: asyncio.StreamWriter) -> None:
    """Wait until a TLS connection is closed: its other end says goodbye too, and is not waited for long."""
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        # It was lost, or the other end does not know how to say goodbye.
        return


async def _connect(address: AgentAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.path:
        return await asyncio.open_unix_connection(address.path)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    try:
        address.check(writer)
    except ConnectionError:
        writer.transport.abort()
        raise
    return reader, writer


async def _greet(link: AgentLink, sandbox: pb.RuntimeSandbox) -> None:
    await link.send(_hello(sandbox))
    await _check_hello(link, sandbox)


def _hello(sandbox: pb.RuntimeSandbox) -> agent_pb2.ToAgent:
    hello = agent_pb2.GatewayHello(
        protocol=frames.LINK_PROTOCOL, sandbox_id=sandbox.sandbox_id, agent_token=sandbox.agent_token
    )
    return agent_pb2.ToAgent(hello=hello)


async def _check_hello(link: AgentLink, sandbox: pb.RuntimeSandbox) -> None:
    first = await link.receive()
    if first.HasField("error"):
        raise from_detail(first.error)
    answer = first.hello
    if (answer.protocol, answer.sandbox_id) != (frames.LINK_PROTOCOL, sandbox.sandbox_id):
        message = f"the agent is {answer.sandbox_id!r} with protocol {answer.protocol}, not {sandbox.sandbox_id!r}"
        raise ProtocolMismatch(message)


@asynccontextmanager
async def installing_token(
    sandbox: pb.RuntimeSandbox, fencing_token: int, link: AgentLink | None = None
) -> AsyncGenerator[None]:
    """Make a sandbox's agent refuse every lower fencing token: it is told before the block, and has answered after it.

    `link` is one that is open already; it is closed in any case.

    Raises:
        SandboxLost: It does not answer.
        LeaseLost: A higher one is in force.
    """
    install = agent_pb2.ToAgent(channel=1, install_token=agent_pb2.InstallToken(fencing_token=fencing_token))
    greeted = link is not None
    async with AsyncExitStack() as stack:
        with _lost(sandbox):
            async with asyncio.timeout(PATIENCE_SECONDS):
                if link is None:
                    link = await stack.enter_async_context(_connected(sandbox))
                else:
                    stack.callback(link.close)
                # Sent along with the hello: an agent that refuses the one does not look at the other.
                await link.send(*([] if greeted else [_hello(sandbox)]), install)
        yield
        with _lost(sandbox):
            async with asyncio.timeout(PATIENCE_SECONDS):
                if not greeted:
                    await _check_hello(link, sandbox)
                answer = await link.receive()
        if answer.HasField("error"):
            raise from_detail(answer.error)
