"""Which addresses are public: reachable by everybody, and not of a private network.

The sources are IANA's registries of special-purpose addresses (RFC 6890), for IPv6 read the other way round: only
global unicast (2000::/3) can be public. Forms that hold an IPv4 address are what that address is, or refused.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_V4: Final = {
    "unspecified": ("0.0.0.0/8",),
    "loopback": ("127.0.0.0/8",),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "shared by a link's customers": ("100.64.0.0/10",),
    "link-local": ("169.254.0.0/16",),
    # Azure answers questions of its machines there, though it looks like anybody's.
    "the metadata of a cloud": ("168.63.129.16/32",),
    "multicast": ("224.0.0.0/4",),
    "for documentation and tests": ("192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    "reserved": ("192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4"),
}
_V6: Final = {
    "loopback": ("::1/128",),
    "unspecified": ("::/128",),
    "private": ("fc00::/7", "fec0::/10"),
    "link-local": ("fe80::/10",),
    "multicast": ("ff00::/8",),
    "a tunnel": ("2001::/32", "2002::/16"),
    "for documentation and tests": ("2001:db8::/32", "3fff::/20"),
    "reserved": ("2001::/23",),
}
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_V4_KINDS: Final = [(IPv4Network(net), kind) for kind, nets in _V4.items() for net in nets]
_V6_KINDS: Final = [(IPv6Network(net), kind) for kind, nets in _V6.items() for net in nets]
_NEVER: Final = frozenset({"unspecified", "multicast"})
# Networks that somebody runs and gives names to.
_NETWORKS: Final = frozenset({"private", "shared by a link's customers", "for documentation and tests"})


def kind_of(address: str) -> str:
    """Return the kind of an address that is not public: "loopback", "private", ...; empty for a public one.

    The node's own addresses are not public, whatever they look like.
    """
    found = ip_address(address)
    kind = _kind_v4(found) if isinstance(found, IPv4Address) else _kind_v6(found)
    return kind or ("the node's own" if _is_own(found) else "")


def is_never_reached(address: str) -> bool:
    """Return whether an address is unreachable even when it is named: it stands for no single host."""
    return kind_of(address) in _NEVER


def is_own(address: str) -> bool:
    """Return whether an address is one of this machine's, loopback included."""
    return _is_own(ip_address(address))


def is_of_network(address: str) -> bool:
    """Return whether a name may have an address: a public one, or one of a private network or one for tests."""
    kind = kind_of(address)
    return not kind or kind in _NETWORKS


def _kind_v4(address: IPv4Address) -> str:
    return next((kind for net, kind in _V4_KINDS if address in net), "")


def _kind_v6(address: IPv6Address) -> str:
    inner = address.ipv4_mapped
    if inner is None and address in _NAT64:
        inner = IPv4Address(address.packed[-4:])
    if inner is not None:
        return _kind_v4(inner)
    known = next((kind for net, kind in _V6_KINDS if address in net), "")
    return known or ("" if address in _GLOBAL_UNICAST else "reserved")


def _is_own(address: IPv4Address | IPv6Address) -> bool:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    # A machine without IPv6 has no socket of it.
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False
