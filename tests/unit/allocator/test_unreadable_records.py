"""Records that cannot be read are shown as such, so that their owner can delete them."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator.records.ownership import is_owned
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.auth.principal import Principal, acting_for

BODY = pb.Sandbox(spec=pb.SandboxSpec(template="base")).SerializeToString()


@pytest.mark.parametrize(
    "damage",
    [
        {"body": b"\xff\xff"},
        {"state": b"NO_SUCH_STATE"},
        {"created_us": "²".encode()},
        {"created_us": b"9" * 6000},
        {"ports": b"1,x"},
        {"user": b"\xff"},
        {"token": b"x"},
        {"token": b"9" * 6000},
    ],
)
def test_a_record_that_cannot_be_read_is_failed_and_keeps_its_id(damage: dict[str, bytes]) -> None:
    shown = RecordState(
        {"id": b"sb_a", "state": b"READY", "body": BODY, "token": b"7", "holder": b"h", **damage}
    ).sandbox()
    assert (shown.sandbox_id, shown.state) == ("sb_a", pb.SANDBOX_STATE_FAILED)
    assert "cannot be read" in shown.state_reason
    # By which it can be released.
    assert shown.lease.fencing_token == (1 if "token" in damage else 7)


def test_a_record_whose_id_or_owner_cannot_be_read_is_looked_at_as_nobodys() -> None:
    fields = {"id": b"\xff", "session": b"\xff", "project": b"\xff", "state": b"READY", "body": BODY}
    assert RecordState(fields).sandbox().state == pb.SANDBOX_STATE_FAILED
    with acting_for(Principal("user", "ada")):
        assert not is_owned(RecordState(fields))


def test_a_record_that_lacks_its_body_is_failed() -> None:
    assert RecordState({"id": b"sb_a", "state": b"READY"}).sandbox().state == pb.SANDBOX_STATE_FAILED
