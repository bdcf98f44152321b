"""One call as its caller holds it: what is sent for it, what came, what is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, TooLarge

CHUNK = 1024 * 1024
MAX_ARGUMENTS = 64 * 1024 * 1024
WINDOW = 1024 * 1024
# The mesh's own deadline comes first and brings a result; this is for a mesh that fell silent.
GRACE_SECONDS = 5.0


class Receiver(Protocol):
    """Who gets a call's events, in the loop."""

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Take the next events, `size` bytes in all; the last event of a call is its result."""
        ...

    def on_input_taken(self, call: Call) -> None:
        """Learn that the sandbox follows: it took input, or has the call and nothing new of it."""
        ...

    def on_error(self, error: SandmeshError) -> None:
        """Learn that nothing more comes."""
        ...


class Nobody:
    """Receives for a caller that went away."""

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Drop them."""

    def on_input_taken(self, call: Call) -> None:
        """Ignore it."""

    def on_error(self, error: SandmeshError) -> None:
        """Drop it."""


@dataclass(slots=True)
class Order:
    """What is asked of a sandbox: a tool, its arguments as JSON, and for how many seconds it may run; 0 is no limit."""

    sandbox_id: str
    fencing_token: int
    tool: str
    arguments: bytes
    timeout: float
    output_limit: int = 0
    takes_input: bool = False
    drops_oldest: bool = False
    attach_to: str = ""
    """A call that is there already: nothing is started, its events are followed."""

    def __post_init__(self) -> None:
        """Refuse arguments that no agent takes, before anything is sent.

        Raises:
            TooLarge: They are more than 64 MiB.
        """
        if len(self.arguments) > MAX_ARGUMENTS:
            message = (
                f"the arguments of {self.tool} are {len(self.arguments)} bytes and at most {MAX_ARGUMENTS} pass: "
                "write the data to files in parts"
            )
            raise TooLarge(message, {"size": str(len(self.arguments)), "limit": str(MAX_ARGUMENTS)})


class Call:
    """A call under way. Its events are numbered; `last` is the last one that came."""

    __slots__ = ("abandoned", "call_id", "inputs", "last", "last_input", "order", "receiver", "unacknowledged")

    def __init__(self, call_id: str, order: Order, receiver: Receiver) -> None:
        self.call_id = call_id
        self.order = order
        self.receiver = receiver
        self.last = 0
        self.unacknowledged = 0
        self.abandoned = False
        self.last_input = 0
        """The number of the last input that was sent, here or by who had the call before."""
        self.inputs: deque[pb.Input] = deque()
        """What was sent and not yet taken by the sandbox: a new stream carries it again."""

    def start_frame(self) -> pb.CallFrame:
        """Return the frame that starts it, with as many arguments as fit."""
        order = self.order
        arguments = order.arguments
        start = pb.CallStart(
            sandbox_id=order.sandbox_id,
            call_id=self.call_id,
            tool=order.tool,
            arguments=arguments if len(arguments) <= CHUNK else arguments[:CHUNK],
            arguments_size=len(arguments) if len(arguments) > CHUNK else 0,
            fencing_token=order.fencing_token,
            window_bytes=WINDOW,
            output_limit_bytes=order.output_limit,
            takes_input=order.takes_input,
            overflow=pb.OVERFLOW_DROP_OLDEST if order.drops_oldest else pb.OVERFLOW_BLOCK,
        )
        if order.timeout:
            start.timeout.seconds = int(order.timeout)
            start.timeout.nanos = int(order.timeout % 1 * 1e9)
        return pb.CallFrame(call_id=self.call_id, start=start)

    def chunk_frames(self) -> Iterator[pb.CallFrame]:
        """Yield the frames with the rest of its arguments."""
        arguments = self.order.arguments
        for offset in range(CHUNK, len(arguments), CHUNK):
            chunk = pb.ArgumentChunk(data=arguments[offset : offset + CHUNK])
            yield pb.CallFrame(call_id=self.call_id, argument_chunk=chunk)

    def attach_frames(self) -> Iterator[pb.CallFrame]:
        """Yield the frames that take it up on a new stream after the last event that came."""
        order = self.order
        attach = pb.Attach(sandbox_id=order.sandbox_id, call_id=self.call_id, after_sequence=self.last)
        attach.fencing_token = order.fencing_token
        yield pb.CallFrame(call_id=self.call_id, attach=attach)
        if self.abandoned:
            yield self.cancel_frame()

    def input_frame(self, item: pb.Input) -> pb.CallFrame:
        """Return the frame that carries data for its standard input."""
        return pb.CallFrame(call_id=self.call_id, input=item)

    def next_line(self, line: str) -> pb.Input:
        """Return the next input, a line."""
        self.last_input += 1
        return pb.Input(sequence=self.last_input, data=f"{line}\n".encode())

    def input_taken(self, batch: pb.CallEventBatch) -> bool:
        """Forget the input that the sandbox has; return whether a batch reports any, or that the call is there."""
        if batch.events and not batch.input_ack_sequence and not batch.input_taken_sequence:
            return False
        self.last_input = max(self.last_input, batch.input_taken_sequence, batch.input_ack_sequence)
        while self.inputs and self.inputs[0].sequence <= batch.input_ack_sequence:
            self.inputs.popleft()
        return True

    def cancel_frame(self) -> pb.CallFrame:
        """Return the frame that ends it."""
        return pb.CallFrame(call_id=self.call_id, cancel=pb.Cancel())

    def unseen(self, events: Sequence[pb.CallEvent]) -> Sequence[pb.CallEvent]:
        """Return those of some events that did not come before: an attach may bring some twice."""
        last = self.last
        if events and events[0].sequence <= last:
            events = [event for event in events if event.sequence > last]
        if events:
            self.last = events[-1].sequence
        return events
