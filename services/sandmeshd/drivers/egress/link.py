"""The link of one sandbox's egress: dialled by the driver, since agents do not dial."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import ProtocolMismatch
from sandmeshd.agentlink.connection import TIMEOUT_SECONDS, open_link
from sandmeshd.agentlink.link import AgentLink, LinkChannel, request
from sandmeshd.drivers.egress.streams import Overrun, ProxyStream

MOST_STREAMS = 512
"""Far more than an agent of ours has: one that opens more is another's."""

Serve = Callable[[ProxyStream], Coroutine[None, None, None]]


class EgressLink:
    """Serves the connections that a sandbox's programs make, for as long as the link holds."""

    def __init__(self, sandbox: pb.RuntimeSandbox, serve: Serve) -> None:
        self._sandbox = sandbox
        self._serve = serve
        self._streams: dict[int, ProxyStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, opened: Callable[[], None]) -> None:
        """Hold the link; `opened` is called once it carries.

        Raises:
            SandboxLost: The agent does not answer, or not any more.
            ProtocolMismatch: The agent breaks the rules of the link.
        """
        async with open_link(self._sandbox, None) as link:
            frames = LinkChannel(link, number=0)
            await request(link, agent_pb2.ToAgent(open_egress=agent_pb2.OpenEgress()), TIMEOUT_SECONDS)
            opened()
            try:
                while True:
                    self._take(link, (await frames.receive()).egress)
            except Overrun as overrun:
                raise ProtocolMismatch(f"the agent of {self._sandbox.sandbox_id} sent too much: {overrun}") from None
            finally:
                await self._give_up()

    def _take(self, link: AgentLink, frame: agent_pb2.EgressFrame) -> None:
        if frame.WhichOneof("step") == "opened" and frame.stream not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                raise Overrun(f"more than {MOST_STREAMS} simultaneous connections")
            self._begin(link, frame.stream)
        elif frame.stream in self._streams:
            self._streams[frame.stream].take(frame)

    def _begin(self, link: AgentLink, number: int) -> None:
        async def send(frame: agent_pb2.EgressFrame) -> None:
            link.send(agent_pb2.ToAgent(egress=frame))
            await link.drain()

        stream = self._streams[number] = ProxyStream(number, send)
        task = asyncio.create_task(self._follow(number, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, number: int, stream: ProxyStream) -> None:
        try:
            await self._serve(stream)
        finally:
            self._streams.pop(number, None)
            await stream.reset()

    async def _give_up(self) -> None:
        for stream in self._streams.values():
            stream.lose()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
