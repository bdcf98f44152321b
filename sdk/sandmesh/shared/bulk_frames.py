"""Direct encoding of a call's input: its data is copied once, where protobuf's messages copy it at every level.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.frames import varint

LEAST = 16 * 1024
"""The fewest bytes of data for which direct encoding pays."""


def tag(message: Descriptor, field: str) -> bytes:
    """Return the tag of a length-delimited field."""
    return varint(message.fields_by_name[field].number << 3 | 2)


def field(tag: bytes, parts: Sequence[bytes]) -> list[bytes]:
    """Encode a field whose content is the concatenated parts."""
    return [tag + varint(sum(map(len, parts))), *parts]


_CALL_ID = tag(pb.CallFrame.DESCRIPTOR, "call_id")
_FRAME = tag(pb.MultiplexRequest.DESCRIPTOR, "frames")
_INPUT = tag(pb.CallFrame.DESCRIPTOR, "input")
_DATA = tag(pb.Input.DESCRIPTOR, "data")


def write_input(call_id: str, item: pb.Input) -> bytes:
    """Encode a MultiplexRequest with one frame of input."""
    rest = pb.Input(sequence=item.sequence, end=item.end).SerializeToString()
    inside = field(_INPUT, [rest, *field(_DATA, [item.data])])
    return b"".join(field(_FRAME, [*field(_CALL_ID, [call_id.encode()]), *inside]))


def read_input(request: bytes) -> tuple[str, bytes] | None:
    """Return the call id and the CallFrame of a message of `write_input`, None for any other message."""
    start = _enter(request, 0, _FRAME)
    if start < 0 or request[start : start + 1] != _CALL_ID:
        return None
    call_id = request[start + 2 : start + 2 + request[start + 1]]
    if len(call_id) > 0x7F or _enter(request, start + 2 + len(call_id), _INPUT) < 0:
        return None
    return call_id.decode(errors="replace"), request[start:]


def _enter(message: bytes, at: int, tag: bytes) -> int:
    """Return the offset of the content of a field at `at` that extends to the message's end, else -1."""
    if message[at : at + 1] != tag:
        return -1
    length, shift = 0, 0
    for place, byte in enumerate(message[at + 1 : at + 6], at + 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return place if place + length == len(message) else -1
    return -1
