"""Addresses that show wrong tokens again and again."""

from __future__ import annotations

import pytest

from sandmesh.errors import Unauthenticated
from sandmeshd.gateway.door.access import BURST, MOST, SECONDS_EACH, Failures, source

STRANGER = "ipv4:203.0.113.9:40000"


class Clock:
    """A time that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail(failures: Failures, peer: str, times: int) -> None:
    for _ in range(times):
        failures.check(peer)
        failures.note(peer)


def test_an_address_gets_so_many_attempts_and_then_one_after_a_while() -> None:
    clock = Clock()
    failures = Failures(clock)
    fail(failures, STRANGER, BURST)
    with pytest.raises(Unauthenticated, match=r"from 203\.0\.113\.9: try again in 2 s"):
        failures.check("ipv4:203.0.113.9:40001")
    clock.now += SECONDS_EACH
    fail(failures, STRANGER, 1)
    with pytest.raises(Unauthenticated):
        failures.check(STRANGER)
    clock.now += SECONDS_EACH * BURST
    fail(failures, STRANGER, BURST)


def test_other_addresses_are_not_limited_with_it() -> None:
    failures = Failures()
    fail(failures, STRANGER, BURST)
    failures.check("ipv4:203.0.113.10:40000")


def test_a_network_of_ipv6_is_one_address() -> None:
    assert source("ipv6:%5B2001:db8::1%5D:1") == source("ipv6:[2001:db8::ffff%eth0]:2") == "2001:db8::/64"
    assert source("ipv6:%5B::ffff:203.0.113.9%5D:1") == "203.0.113.9"


@pytest.mark.parametrize("peer", ["unix:", "ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5", "unix:/run/s", ""])
def test_the_meshs_own_and_proxies_on_loopback_are_not_limited(peer: str) -> None:
    fail(Failures(), peer, BURST * 2)


def test_only_so_many_addresses_are_remembered() -> None:
    failures = Failures(Clock())
    fail(failures, STRANGER, BURST)
    for number in range(MOST):
        failures.note(f"ipv4:10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1")
    failures.check(STRANGER)
