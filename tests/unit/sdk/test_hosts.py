"""The hosts of a network grant, as they are written."""

from __future__ import annotations

import pytest

from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import normal_host, plain_host, read_host


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Example.ORG.", "example.org"),
        ("example.org:8443", "example.org:8443"),
        ("example.org:*", "example.org:*"),
        ("*.Example.org", "*.example.org"),
        ("*.internal:22", "*.internal:22"),
        ("localhost", "localhost"),
        ("my_host", "my_host"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("10.0.0.5:80", "10.0.0.5:80"),
        ("::1", "[::1]"),
        ("[0:0::1]:80", "[::1]:80"),
        ("packages", "packages"),
    ],
)
def test_a_host_has_one_form(written: str, meant: str) -> None:
    assert normal_host(written) == meant
    assert normal_host(meant) == meant


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "*",
            "*.",
            "*.*.org",
            "a..b",
            "-a.org",
            "https://example.org",
            "example.org/x",
            "user@example.org",
            "a b",
        ),
        *("example.org:0", "example.org:65536", "example.org:http", "[::1", "::1%eth0", "fe80::1%lo", "*.10.0.0.5"),
        *("010.0.0.5", "0x7f000001", "2130706433", "127.1", "1.2.3.4.5", "a" * 64, "a." * 130 + "b", "a.0x1f"),
    ],
)
def test_what_is_no_host_is_refused_with_what_would_be(written: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a host"):
        read_host(written)


def test_without_a_port_it_is_for_the_ports_of_the_web() -> None:
    assert [read_host("a.org").allows(port) for port in (80, 443, 22)] == [True, True, False]
    assert [read_host("a.org:22").allows(port) for port in (80, 443, 22)] == [False, False, True]
    assert read_host("a.org:*").allows(9)


def test_a_domain_covers_what_is_below_it_and_nothing_else() -> None:
    below = read_host("*.example.org")
    names = ["a.example.org", "a.b.example.org", "example.org", "badexample.org", "a.example.org.evil.net"]
    assert [below.covers(name) for name in names] == [True, True, False, False, False]


@pytest.mark.parametrize("text", ["0177.0.0.1", "0x7f.0.0.1", "2130706433", "127.1", "1.2.3", "::ffff:1.2.3.4%x"])
def test_numbers_that_programs_read_differently_are_no_host(text: str) -> None:
    assert plain_host(text) is None
