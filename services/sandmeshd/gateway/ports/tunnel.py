"""A connection to a port inside a sandbox, as a transport: its bytes are a call's input and output.

What the port sends is acknowledged as it is taken, and what goes to it waits for the agent's acknowledgement, so a slow
side slows the other and the gateway holds at most a window of each connection.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeAlias, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, from_detail
from sandmeshd.gateway.calls.relay import Relay
from sandmeshd.gateway.ports.agent_call import read_batch, refusal, start_frame
from sandmeshd.gateway.ports.tokens import TokenTarget
from sandmeshd.gateway.routes.routes import OwnedRoutes

WINDOW: Final = 256 << 10
Holding: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Counts a sandbox as in use for the time of a block."""
_LARGEST_INPUT: Final = 256 << 10


class _SentInput:
    """Input on its way to the port: how much of it was not acknowledged, and whether the writer is paused for that."""

    def __init__(self) -> None:
        self.unacknowledged = 0
        self.paused = False
        self._last = 0
        self._sizes: dict[int, int] = {}

    def add(self, size: int) -> int:
        """Count a piece; return its sequence."""
        self._last += 1
        self._sizes[self._last] = size
        self.unacknowledged += size
        return self._last

    def acknowledge(self, sequence: int) -> None:
        """Forget the pieces up to one."""
        for number in [size for size in self._sizes if size <= sequence]:
            self.unacknowledged -= self._sizes.pop(number)


class Tunnel(asyncio.Transport):
    """The gateway's end of a connection; the protocol above it is aiohttp's."""

    def __init__(self, protocol: asyncio.BaseProtocol, over: Callable[[], None]) -> None:
        super().__init__()
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._protocol = cast("asyncio.Protocol", protocol)
        self._relay: Relay | None = None
        self._over = over
        self._closing = False
        self._ended = False
        self._broken: ConnectionResetError | None = None
        self._paused = False
        self._held: list[tuple[bytes, int, bool]] = []
        self._sent = _SentInput()

    def open(self, routes: OwnedRoutes, target: TokenTarget, grace: float, viewer: str = "") -> None:
        """Start the call, for a viewer of a desktop if there is one; `connected` tells whether the port answers."""
        frame = start_frame(
            target.sandbox_id,
            "ports.connect",
            {"exposure_id": target.exposure_id, **({"viewer": viewer} if viewer else {})},
            takes_input=True,
            window_bytes=WINDOW,
        )
        self._relay = Relay(routes, self, frame.call_id)
        self._relay.open(frame, grace)

    @property
    def broken(self) -> ConnectionResetError | None:
        """Why the connection ended that neither side ended, as when its URL was revoked."""
        return self._broken

    # What the relay calls.

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        """Take events: bytes of the port, and what the port took."""
        batch = read_batch(response)
        if batch.HasField("error"):
            self._fail(from_detail(batch.error))
        self._free(batch.input_ack_sequence)
        for event in batch.events:
            self._take(event)
        if not self._held:
            call.acknowledge(last_sequence)

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        """Learn that nothing more comes."""
        if error is not None:
            self._fail(error)
        self._hold(b"", 0, last=True)

    def _take(self, event: pb.CallEvent) -> None:
        if event.HasField("started") and not self.connected.done():
            self.connected.set_result(None)
        elif event.HasField("output"):
            self._hold(event.output.data, event.sequence, last=False)
        elif event.HasField("result") and event.result.is_error:
            self._broken = ConnectionResetError(event.result.message or "the connection was ended")
            self._fail(refusal(event.result))

    def _hold(self, data: bytes, sequence: int, *, last: bool) -> None:
        if self._paused or self._held:
            self._held.append((data, sequence, last))
        else:
            self._give(data, last=last)

    def _give(self, data: bytes, *, last: bool) -> None:
        if self._closing:
            return
        if last:
            self._end(self._broken)
        elif data:
            self._protocol.data_received(data)

    def _fail(self, error: Exception) -> None:
        self._broken = self._broken or ConnectionResetError(str(error))
        if not self.connected.done():
            self.connected.set_exception(error)
            # A waiter has it already; without one it is dropped.
            self.connected.exception()

    def _free(self, sequence: int) -> None:
        self._sent.acknowledge(sequence)
        if self._sent.paused and self._sent.unacknowledged <= WINDOW // 2:
            self._sent.paused = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = self._closing = True
        self._held.clear()
        self._over()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    # What asyncio.Transport is.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send to the port."""
        if self._closing or self._relay is None:
            return
        view = memoryview(data)
        for at in range(0, len(view), _LARGEST_INPUT):
            piece = bytes(view[at : at + _LARGEST_INPUT])
            item = pb.Input(sequence=self._sent.add(len(piece)), data=piece)
            self._relay.push(pb.CallFrame(call_id=self._relay.call_id, input=item))
        if not self._sent.paused and self._sent.unacknowledged > WINDOW:
            self._sent.paused = True
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self._closing

    def is_reading(self) -> bool:
        """Return whether bytes are delivered."""
        return not self._paused

    def pause_reading(self) -> None:
        """Pause delivery; what has arrived is held, and not acknowledged, so that little more comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Deliver what was held, and resume."""
        self._paused = False
        last_sequence = 0
        while self._held and not self._paused:
            data, sequence, last = self._held.pop(0)
            last_sequence = max(last_sequence, sequence)
            self._give(data, last=last)
        if last_sequence and self._relay is not None:
            self._relay.acknowledge(last_sequence)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the port has not taken."""
        return self._sent.unacknowledged

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket to tell of."""
        return default

    def close(self) -> None:
        """End the connection."""
        if not self._closing and self._relay is not None:
            self._closing = True
            if not self._relay.over:
                self._relay.push(pb.CallFrame(call_id=self._relay.call_id, cancel=pb.Cancel()))
                self._relay.detach()
        self._end(self._broken)

    def abort(self) -> None:
        """Break the connection: nothing that is under way on it seems whole."""
        self._broken = self._broken or ConnectionResetError("the connection was broken off")
        self.close()


class OpenTunnels:
    """The tunnels that are open through this gateway, those that wait for another request too."""

    def __init__(self) -> None:
        self._open: defaultdict[str, set[Tunnel]] = defaultdict(set)

    @contextmanager
    def keeping(self, exposure_id: str, tunnel: Tunnel) -> Generator[None]:
        """Count a tunnel as open for the time of a block."""
        self._open[exposure_id].add(tunnel)
        try:
            yield
        finally:
            self._open[exposure_id].discard(tunnel)
            if not self._open[exposure_id]:
                del self._open[exposure_id]

    def has(self, exposure_id: str) -> bool:
        """Return whether a tunnel of an exposed port is open."""
        return exposure_id in self._open

    def abort(self, exposure_id: str) -> None:
        """Break the tunnels of an exposed port."""
        for tunnel in list(self._open.get(exposure_id, ())):
            tunnel.abort()
