"""Messages that may carry much data. Those that do are written by hand, which copies the data at most once.

What the messages' own methods write is the same, by way of a copy for each message that holds another: for little data
that is the shorter way. See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from typing import Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.bulk_frames import LEAST, field, tag

_EVENTS: Final = tag(pb.CallEventBatch.DESCRIPTOR, "events")
_OUTPUT: Final = tag(pb.CallEvent.DESCRIPTOR, "output")
_DATA: Final = tag(pb.Output.DESCRIPTOR, "data")
_FEW: Final = 8
_BATCH: Final = tag(agent_pb2.FromAgent.DESCRIPTOR, "batch")


def batch_of(event: pb.CallEvent, size: int = 0) -> bytes:
    """Give a CallEventBatch with one event, which carries so many bytes."""
    if size < LEAST:
        return pb.CallEventBatch(events=(event,)).SerializeToString()
    return b"".join(field(_EVENTS, [event.SerializeToString()]))


def batch_of_output(sequence: int, stream: int, data: bytes) -> bytes:
    """Give a CallEventBatch with one event, which is output."""
    if len(data) < LEAST:
        of_both = pb.Output(stream=stream, data=data)  # type: ignore[arg-type]  # typeshed has no open enums
        return batch_of(pb.CallEvent(sequence=sequence, output=of_both))
    of = pb.Output(stream=stream).SerializeToString()  # type: ignore[arg-type]  # typeshed has no open enums
    output = field(_OUTPUT, [of, *field(_DATA, [data])])
    return b"".join(field(_EVENTS, [pb.CallEvent(sequence=sequence).SerializeToString(), *output]))


def frame_of(frame: agent_pb2.FromAgent, batch: list[bytes]) -> list[bytes]:
    """Give the parts of a FromAgent with a batch, which itself comes in parts."""
    if len(batch) < _FEW and max(map(len, batch)) < LEAST:
        frame.batch = b"".join(batch)
        return [frame.SerializeToString()]
    return [frame.SerializeToString(), *field(_BATCH, batch)]
