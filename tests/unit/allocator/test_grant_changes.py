"""What a change makes of a grant."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.allocator.network.changes import changed

NONE, PUBLIC, HOSTS = pb.NETWORK_MODE_NONE, pb.NETWORK_MODE_PUBLIC, pb.NETWORK_MODE_HOSTS


def grant(mode: pb.NetworkMode.ValueType, *hosts: str) -> pb.NetworkGrant:
    return pb.NetworkGrant(mode=mode, hosts=hosts)


def change(current: pb.NetworkGrant, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> pb.NetworkGrant:
    return changed(current, pb.ChangeNetworkRequest(allow=allow, deny=deny))


def test_hosts_are_added_and_taken_out() -> None:
    assert change(grant(HOSTS, "a.org"), allow=("B.org", "a.org")) == grant(HOSTS, "a.org", "b.org")
    assert change(grant(HOSTS, "a.org", "b.org"), deny=("a.org",)) == grant(HOSTS, "b.org")
    assert change(grant(PUBLIC, "nas.local:5000"), deny=("nas.local:5000",)) == grant(PUBLIC)
    assert change(grant(HOSTS, "a.org"), allow=("b.org",), deny=("a.org",)) == grant(HOSTS, "b.org")


def test_public_is_added_and_taken_out_as_a_host_is() -> None:
    assert change(grant(HOSTS, "a.org"), allow=("public",)) == grant(PUBLIC, "a.org")
    assert change(grant(PUBLIC, "a.org"), deny=("public",)) == grant(HOSTS, "a.org")


def test_what_denies_everything_leaves_none_and_an_allowed_host_comes_back() -> None:
    assert change(grant(HOSTS, "a.org"), deny=("a.org",)) == grant(NONE)
    assert change(grant(PUBLIC), deny=("public",)) == grant(NONE)
    assert change(grant(NONE), allow=("a.org",)) == grant(HOSTS, "a.org")


def test_a_change_keeps_that_only_public_addresses_are_allowed() -> None:
    current = pb.NetworkGrant(mode=HOSTS, hosts=["a.org"], only_public=True)
    assert change(current, allow=("b.org",)).only_public


@pytest.mark.parametrize(
    ("current", "denied", "message"),
    [
        (grant(PUBLIC), "a.org", "among all public hosts"),
        (grant(HOSTS, "*.a.org"), "x.a.org", r"stays allowed by \*\.a\.org"),
        (grant(HOSTS, "a.org", "a.org:8443"), "a.org", "stays allowed by a.org:8443"),
    ],
)
def test_denying_what_stays_allowed_is_refused(current: pb.NetworkGrant, denied: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        change(current, deny=(denied,))


def test_a_whole_grant_and_changes_of_it_exclude_each_other() -> None:
    request = pb.ChangeNetworkRequest(grant=grant(PUBLIC), allow=["a.org"])
    with pytest.raises(InvalidArgument, match="without allow and deny"):
        changed(grant(NONE), request)
