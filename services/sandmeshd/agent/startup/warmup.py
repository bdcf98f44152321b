"""A first cell that nobody asked for: an agent that waits passes one through itself and its kernel, which forgets it.

What a fork shares is copied when it is first written, and much is made when it is first used: so both happen while
nobody waits. The cell comes by a link of its own to calls of its own; those of the sandbox know nothing of it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.agent.calls.dispatcher import Engine
from sandmeshd.agent.link.framing import FramedLink
from sandmeshd.agent.link.link import serve_links
from sandmeshd.agent.python.cells import Cells
from sandmeshd.agent.startup.deferred import account

if TYPE_CHECKING:
    from sandmeshd.agent.calls.dispatcher import Tools
    from sandmeshd.agent.calls.toolbox import Handler

_TOOL: Final = "run_ipython_cell"
_CELL: Final = b'{"code": "1+1", "timeout": 10}'
_CALL_ID: Final = "practice"
_IDLE_SECONDS: Final = 0.2
"""How long an agent that has its tools waits for a first call before it practises."""
_BUSY_SECONDS: Final = 2.0
"""How much longer where others wanted the processors since its start, as when many sandboxes are created at once."""


class Practice:
    """The one practice of an agent, once it has its tools and nothing to do."""

    def __init__(self, engine: Engine, cells: Cells) -> None:
        self._engine = engine
        self._cells = cells
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Practise in a moment, unless a call comes before."""
        self._timer = self._loop.call_later(_IDLE_SECONDS, self._look)

    async def close(self) -> None:
        """Leave it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _look(self) -> None:
        ran, waited = account()
        if waited > ran:
            self._timer = self._loop.call_later(_BUSY_SECONDS, self._start)
        else:
            self._start()

    def _start(self) -> None:
        if self._engine.calls.untouched:
            self._work = self._loop.create_task(self.practise())
            # One that fails is none: what is amiss shows at the first call.
            self._work.add_done_callback(lambda work: work.cancelled() or work.exception())

    async def practise(self) -> None:
        """Do it now."""
        engine = self._engine.apart(lambda tools: _Tools(tools, self._cells.rehearse))
        ours, theirs = socket.socketpair()
        await self._loop.connect_accepted_socket(serve_links(engine), theirs)
        _, gateway = await self._loop.create_unix_connection(lambda: _Gateway(engine), sock=ours)
        try:
            await gateway.ended
        finally:
            gateway.close()
            await engine.close()


class _Tools:
    """The sandbox's tools, as far as a cell is concerned, which is rehearsed."""

    def __init__(self, tools: Tools, rehearse: Handler) -> None:
        self._tools = tools
        self._rehearse = rehearse
        self.added = tools.added

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Give a cell's checked arguments, and what rehearses it."""
        return self._tools.prepare(name, arguments)[0], self._rehearse

    def is_bounded(self, name: str) -> bool:
        """Answer as the sandbox's tools do."""
        return self._tools.is_bounded(name)

    def listing(self, group: str) -> call_pb2.ListToolsResponse:
        """Answer as the sandbox's tools do."""
        return self._tools.listing(group)


class _Gateway(FramedLink):
    """The gateway of one call."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._identity = engine.identity
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello, install a token as a claim does, and start the call."""
        super().connection_made(transport)
        sandbox_id = self._identity.sandbox_id
        hello = pb.GatewayHello(protocol=LINK_PROTOCOL, sandbox_id=sandbox_id, agent_token=self._identity.agent_token)
        start = call_pb2.CallStart(sandbox_id=sandbox_id, call_id=_CALL_ID, tool=_TOOL, arguments=_CELL)
        self._send(pb.ToAgent(hello=hello))
        self._send(pb.ToAgent(channel=1, install_token=pb.InstallToken(fencing_token=1)))
        self._tell(start=start)

    def connection_lost(self, exc: Exception | None) -> None:
        """Have it ended."""
        super().connection_lost(exc)
        self._end()

    def take(self, frame: bytes) -> None:
        """Acknowledge events; the last ones end the call."""
        told = pb.FromAgent.FromString(frame)
        if told.last_sequence:
            self._tell(acknowledge=call_pb2.Acknowledge(sequence=told.last_sequence))
        if told.final:
            self._end()

    def _tell(self, **body: Any) -> None:
        fenced = pb.Fenced(frame=call_pb2.CallFrame(call_id=_CALL_ID, **body), fencing_token=1)
        self._send(pb.ToAgent(channel=2, call=fenced))

    def _send(self, frame: pb.ToAgent) -> None:
        self.write(frame.SerializeToString())

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
