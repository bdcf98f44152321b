"""Input that is put on the wire by hand is what protobuf would have put there."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.bulk_frames import read_input, write_input

INPUTS = st.builds(pb.Input, sequence=st.integers(0, 2**64 - 1), data=st.binary(max_size=300), end=st.booleans())


@given(call_id=st.text(min_size=1, max_size=20), item=INPUTS)
@example("c", pb.Input(sequence=1, data=bytes(1 << 20)))
@example("c", pb.Input(sequence=1, data=bytes(127 - 8)))
def test_a_message_made_by_hand_is_read_by_protobuf_and_by_hand(call_id: str, item: pb.Input) -> None:
    written = write_input(call_id, item)
    frame = pb.CallFrame(call_id=call_id, input=item)
    assert pb.MultiplexRequest.FromString(written) == pb.MultiplexRequest(frames=[frame])
    found = read_input(written)
    assert found is not None
    assert (found[0], pb.CallFrame.FromString(found[1])) == (call_id, frame)


@pytest.mark.parametrize(
    "request_",
    [
        pb.MultiplexRequest(),
        pb.MultiplexRequest(frames=[pb.CallFrame(call_id="c", cancel=pb.Cancel())]),
        pb.MultiplexRequest(frames=[pb.CallFrame(input=pb.Input(data=b"no id"))]),
        pb.MultiplexRequest(frames=[pb.CallFrame(call_id="c", input=pb.Input(data=b"two"))] * 2),
        pb.MultiplexRequest(frames=[pb.CallFrame(call_id="c" * 128, input=pb.Input(data=b"long"))]),
    ],
)
def test_other_messages_are_left_to_protobuf(request_: pb.MultiplexRequest) -> None:
    assert read_input(request_.SerializeToString()) is None


@given(st.binary(max_size=40))
def test_whatever_comes_is_read_as_protobuf_reads_it_or_left(data: bytes) -> None:
    found = read_input(data)
    if found is not None:
        call_id, frame = found
        assert data.endswith(frame)
        assert call_id.encode() in data or "\N{REPLACEMENT CHARACTER}" in call_id
