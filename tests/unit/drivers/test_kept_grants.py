"""Changes of grants that the next run of a driver reads, damaged ones too."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.decorators.egress_guard import KeptMessages

CLOSED = pb.NetworkGrant(mode=pb.NETWORK_MODE_NONE)
OPEN = pb.NetworkGrant(mode=pb.NETWORK_MODE_HOSTS, hosts=["example.org"])


def test_a_grant_that_cannot_be_read_allows_nothing_until_it_is_changed_again(tmp_path: Path) -> None:
    kept = KeptMessages(tmp_path, pb.NetworkGrant, CLOSED)
    for data in (b"\xff\xff", OPEN.SerializeToString()[:-3], b"\x0a\x05ab"):
        (tmp_path / "sb_one").write_bytes(data)
        with capture_logs() as logged:
            assert kept.read("sb_one") == CLOSED
        assert [line["log_level"] for line in logged] == ["warning"]
        assert logged[0]["path"].endswith("sb_one")
    kept.write("sb_one", OPEN)
    assert kept.read("sb_one") == OPEN
    kept.remove("sb_one")
    assert kept.read("sb_one") is None


def test_secrets_that_cannot_be_read_are_those_that_the_sandbox_was_made_with(tmp_path: Path) -> None:
    (tmp_path / "sb_one").write_bytes(b"\xff")
    assert KeptMessages(tmp_path, driver_pb2.ChangeNetworkRequest).read("sb_one") is None


def test_a_folder_in_place_of_a_file_is_as_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "sb_one").mkdir()
    assert KeptMessages(tmp_path, pb.NetworkGrant, CLOSED).read("sb_one") == CLOSED
