"""Bytes that are relayed without being parsed.

MultiplexResponse, RunCallResponse, OpenCallResponse and AttachCallResponse all hold one CallEventBatch in field 1, so
an agent's serialized batch becomes any of them by two bytes of tag and length before it.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import SandmeshError, to_detail
from sandmesh.shared.bulk_frames import field, tag, varint

_BATCH_TAG = b"\x0a"
_CALL = tag(agent_pb2.ToAgent.DESCRIPTOR, "call")
_FRAME = tag(agent_pb2.Fenced.DESCRIPTOR, "frame")


def wrap(batch: bytes) -> bytes:
    """Make a response of a serialized CallEventBatch."""
    return _BATCH_TAG + varint(len(batch)) + batch


def fence(channel: int, token: int, frame: bytes) -> list[bytes]:
    """Make a ToAgent of a serialized CallFrame, in parts."""
    fenced = [agent_pb2.Fenced(fencing_token=token).SerializeToString(), *field(_FRAME, [frame])]
    return [agent_pb2.ToAgent(channel=channel).SerializeToString(), *field(_CALL, fenced)]


def refusal(call_id: str, error: SandmeshError) -> bytes:
    """Make a response that ends one call of a shared stream with an error."""
    return wrap(call_pb2.CallEventBatch(call_id=call_id, error=to_detail(error)).SerializeToString())
