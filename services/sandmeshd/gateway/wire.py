"""Bytes that are relayed without being parsed.

MultiplexResponse, RunCallResponse, OpenCallResponse and AttachCallResponse all hold one CallEventBatch in field 1, so
an agent's serialized batch becomes any of them by two bytes of tag and length before it.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import SandmeshError, to_detail

_BATCH_TAG = b"\x0a"


def wrap(batch: bytes) -> bytes:
    """Make a response of a serialized CallEventBatch."""
    return _BATCH_TAG + varint(len(batch)) + batch


def varint(number: int) -> bytes:
    """Encode a length."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def refusal(call_id: str, error: SandmeshError) -> bytes:
    """Make a response that ends one call of a shared stream with an error."""
    return wrap(call_pb2.CallEventBatch(call_id=call_id, error=to_detail(error)).SerializeToString())
