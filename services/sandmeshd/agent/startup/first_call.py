"""The warm-up of an idle agent: a first call of a cell through a link to the kernel, which forgets it.

Memory that a fork shares is copied when it is first written, and much is initialized at its first use: so both happen
before a call waits for them. The link and its calls are separate from those of the sandbox.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.agent.calls.dispatcher import Dispatcher
from sandmeshd.agent.link.framing import FramedLink
from sandmeshd.agent.link.link import serve_links
from sandmeshd.agent.python.cells import Cells
from sandmeshd.agent.startup.deferred import processor_time

if TYPE_CHECKING:
    from sandmeshd.agent.calls.dispatcher import Tools
    from sandmeshd.agent.calls.toolbox import Added, Handler

_TOOL: Final = "run_ipython_cell"
_CELL: Final = b'{"code": "1+1", "timeout": 10}'
_CALL_ID: Final = "warm-up"
_IDLE_SECONDS: Final = 0.2
"""How long an agent whose tools are imported must be idle before it warms up."""
_BUSY_SECONDS: Final = 2.0
"""The further delay while the machine's processors are busy, as when many sandboxes are created together."""


class FirstCall:
    """The warm-up of an agent by a first call, made once its tools are imported, unless a real call comes before."""

    def __init__(self, dispatcher: Dispatcher, cells: Cells) -> None:
        self._dispatcher = dispatcher
        self._cells = cells
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None

    def schedule(self) -> None:
        """Schedule the call."""
        self._timer = self._loop.call_later(_IDLE_SECONDS, self._start_if_idle)

    async def close(self) -> None:
        """Cancel it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _start_if_idle(self) -> None:
        ran, waited = processor_time()
        if waited > ran:
            self._timer = self._loop.call_later(_BUSY_SECONDS, self._start)
        else:
            self._start()

    def _start(self) -> None:
        if self._dispatcher.calls.untouched:
            self._work = self._loop.create_task(self.run())
            # A failure is ignored: its cause will show at the first real call.
            self._work.add_done_callback(lambda work: work.cancelled() or work.exception())

    async def run(self) -> None:
        """Make the call now."""
        dispatcher = self._dispatcher.separate(lambda tools: _Tools(tools, self._cells.run_warm_up))
        ours, theirs = socket.socketpair()
        await self._loop.connect_accepted_socket(serve_links(dispatcher), theirs)
        _, gateway = await self._loop.create_unix_connection(lambda: _Gateway(dispatcher), sock=ours)
        try:
            await gateway.ended
        finally:
            gateway.close()
            await dispatcher.close()


class _Tools:
    """The sandbox's tools, with another handler of cells."""

    def __init__(self, tools: Tools, run_cell: Handler) -> None:
        self._tools = tools
        self._run_cell = run_cell

    @property
    def added(self) -> Added | None:
        """Return what the sandbox's tools do, which imports them all."""
        return self._tools.added

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Return a cell's validated arguments and the other handler."""
        return self._tools.prepare(name, arguments)[0], self._run_cell

    def is_bounded(self, name: str) -> bool:
        """Return what the sandbox's tools do."""
        return self._tools.is_bounded(name)

    def listing(self, group: str) -> call_pb2.ListToolsResponse:
        """Return what the sandbox's tools do."""
        return self._tools.listing(group)


class _Gateway(FramedLink):
    """A gateway that makes one call."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._identity = dispatcher.identity
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send a hello, install a token as a claim does, and start the call."""
        super().connection_made(transport)
        sandbox_id = self._identity.sandbox_id
        hello = pb.GatewayHello(protocol=LINK_PROTOCOL, sandbox_id=sandbox_id, agent_token=self._identity.agent_token)
        start = call_pb2.CallStart(sandbox_id=sandbox_id, call_id=_CALL_ID, tool=_TOOL, arguments=_CELL)
        self._send(pb.ToAgent(hello=hello))
        self._send(pb.ToAgent(channel=1, install_token=pb.InstallToken(fencing_token=1)))
        self._send_call_frame(start=start)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call."""
        super().connection_lost(exc)
        self._end()

    def frame_received(self, frame: bytes) -> None:
        """Acknowledge events; the last ones end the call."""
        message = pb.FromAgent.FromString(frame)
        if message.last_sequence:
            self._send_call_frame(acknowledge=call_pb2.Acknowledge(sequence=message.last_sequence))
        if message.final:
            self._end()

    def _send_call_frame(self, **body: Any) -> None:
        fenced = pb.Fenced(frame=call_pb2.CallFrame(call_id=_CALL_ID, **body), fencing_token=1)
        self._send(pb.ToAgent(channel=2, call=fenced))

    def _send(self, frame: pb.ToAgent) -> None:
        self.write(frame.SerializeToString())

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
