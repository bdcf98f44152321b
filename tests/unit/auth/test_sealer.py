"""Values are readable only with the mesh's secret, by their owner, for their hosts."""

from __future__ import annotations

import pytest

from sandmesh.errors import InvalidArgument
from sandmeshd.auth.sealer import Sealer

VALUE, HOSTS = "sk-live-1", ["api.example.org", "b.example.org:8443"]
SECRET = "a secret of a mesh that is long enough"  # noqa: S105 - a test's


def test_a_value_comes_back_for_its_owner_and_hosts_in_any_order() -> None:
    sealed = Sealer(SECRET).seal(VALUE, "ada", HOSTS)
    assert VALUE.encode() not in sealed
    assert Sealer(SECRET).unseal(sealed, "ada", HOSTS[::-1]) == VALUE


def test_equal_values_are_sealed_differently() -> None:
    assert Sealer(SECRET).seal(VALUE, "ada", HOSTS) != Sealer(SECRET).seal(VALUE, "ada", HOSTS)


@pytest.mark.parametrize(
    ("secret", "owner", "hosts"),
    [
        (SECRET, "bob", HOSTS),
        (SECRET, "ada", HOSTS[:1]),
        (SECRET, "ada", [*HOSTS, "evil.example.org"]),
        (SECRET + "!", "ada", HOSTS),
    ],
)
def test_another_owner_host_or_mesh_reads_nothing(secret: str, owner: str, hosts: list[str]) -> None:
    sealed = Sealer(SECRET).seal(VALUE, "ada", HOSTS)
    with pytest.raises(InvalidArgument, match="set the secret again"):
        Sealer(secret).unseal(sealed, owner, hosts)


@pytest.mark.parametrize("sealed", [b"", b"short", b"x" * 40])
def test_what_was_not_sealed_is_refused(sealed: bytes) -> None:
    with pytest.raises(InvalidArgument):
        Sealer(SECRET).unseal(sealed, "ada", HOSTS)
