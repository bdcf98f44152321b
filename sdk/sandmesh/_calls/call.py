"""One call as its caller holds it: what is sent for it, what came, what is acknowledged."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, SandmeshError, TooLarge
from sandmesh.shared.traces.context import RemoteTrace

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


class DroppedEvents:
    """Drops what comes for a caller that went away."""

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Drop them."""

    def on_input_taken(self, call: Call) -> None:
        """Ignore it."""

    def on_error(self, error: SandmeshError) -> None:
        """Drop it."""


@dataclass(slots=True)
class Order:
    """A request to a sandbox: a tool, its arguments as JSON, and for how many seconds it may run; 0: unlimited."""

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
    trace: RemoteTrace | None = None
    """Its place in a trace, where it has one."""
    traces_processes: bool = False
    """Whether the programs that it runs learn their place in the trace."""


def write_arguments(tool: str, arguments: Mapping[str, Any] | None) -> bytes:
    """Write a call's arguments as JSON.

    Raises:
        InvalidArgument: They are no mapping, or hold what JSON cannot.
        TooLarge: They are more than any agent takes, 64 MiB.
    """
    if arguments is None:
        return b""
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        message = f"arguments of {tool} are a mapping of names to values, not {arguments!r}"
        raise InvalidArgument(message, {"argument": f"arguments of {tool}"})
    try:
        written = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the arguments of {tool} cannot be JSON: {error}", {"tool": tool}) from None
    if len(written) > MAX_ARGUMENTS:
        raise too_large(tool, written)
    return written


def too_large(tool: str, arguments: bytes) -> TooLarge:
    """Return the error of arguments that no agent takes."""
    message = (
        f"the arguments of {tool} are {len(arguments)} bytes and at most {MAX_ARGUMENTS} pass: "
        "write the data to files in parts"
    )
    return TooLarge(message, {"size": str(len(arguments)), "limit": str(MAX_ARGUMENTS)})


class Call:
    """A call under way. Its events are numbered; `last` is the last one that came."""

    __slots__ = ("abandoned", "begun", "call_id", "inputs", "last", "last_input", "order", "receiver", "unacknowledged")

    def __init__(self, call_id: str, order: Order, receiver: Receiver) -> None:
        self.call_id = call_id
        self.order = order
        self.receiver = receiver
        self.last = 0
        self.unacknowledged = 0
        self.begun = 0.0
        """When it began, by the monotonic clock, if no mesh answered then."""
        self.abandoned = False
        self.last_input = 0
        """The number of the last input that was sent, here or by the caller that had the call before."""
        self.inputs: deque[pb.Input] = deque()
        """What was sent and not yet taken by the sandbox: a new stream carries it again."""

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

    def input_taken(self, batch: pb.CallEventBatch) -> None:
        """Forget the input that the sandbox has, as a batch reports it."""
        self.last_input = max(self.last_input, batch.input_taken_sequence, batch.input_ack_sequence)
        while self.inputs and self.inputs[0].sequence <= batch.input_ack_sequence:
            self.inputs.popleft()

    def cancel_frame(self) -> pb.CallFrame:
        """Return the frame that ends it."""
        return pb.CallFrame(call_id=self.call_id, cancel=pb.Cancel())
