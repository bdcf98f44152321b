"""Messages that carry much data, written by hand as protobuf's wire format says: each copies its data at most once.

What the messages' own methods would write is the same, by way of a copy for each message that holds another.
See https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from typing import Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb


def _tag(number: int) -> bytes:
    """Give the tag of a field with a length, of the first fifteen."""
    return bytes([number << 3 | 2])


_EVENTS: Final = _tag(pb.CallEventBatch.EVENTS_FIELD_NUMBER)
_OUTPUT: Final = _tag(pb.CallEvent.OUTPUT_FIELD_NUMBER)
_DATA: Final = _tag(pb.Output.DATA_FIELD_NUMBER)
_BATCH: Final = _tag(agent_pb2.FromAgent.BATCH_FIELD_NUMBER)


def size_of(number: int) -> bytes:
    """Give a length as a varint."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def batch_of(event: pb.CallEvent) -> bytes:
    """Give a CallEventBatch with one event."""
    body = event.SerializeToString()
    return b"".join((_EVENTS, size_of(len(body)), body))


def batch_of_output(sequence: int, stream: int, data: bytes) -> bytes:
    """Give a CallEventBatch with one event, which is output."""
    of = pb.Output(stream=stream).SerializeToString()  # type: ignore[arg-type]  # typeshed has no open enums
    of = b"".join((of, _DATA, size_of(len(data))))
    head = pb.CallEvent(sequence=sequence).SerializeToString()
    head = b"".join((head, _OUTPUT, size_of(len(of) + len(data))))
    return b"".join((_EVENTS, size_of(len(head) + len(of) + len(data)), head, of, data))


def frame_of(frame: agent_pb2.FromAgent, batch: list[bytes]) -> list[bytes]:
    """Give the parts of a FromAgent with a batch, which itself comes in parts."""
    return [frame.SerializeToString(), _BATCH, size_of(sum(map(len, batch))), *batch]
