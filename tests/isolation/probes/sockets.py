"""Sockets, and what is behind them."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

from .attempts import PROBES, Probe, probe

# EINVAL: what socket(2) says of a family that is not there.
REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL)


def _family(family: int, kind: int = socket.SOCK_RAW, protocol: int = 0) -> Probe:
    def attempt(_: dict[str, Any]) -> list[str]:
        try:
            socket.socket(family, kind, protocol).close()
        except OSError as error:
            return [] if error.errno in REFUSED else [f"{error}"]
        return [f"a socket of family {family}"]

    return attempt


PROBES.update(
    netlink_socket=_family(16),
    packet_socket=_family(17),
    alg_socket=_family(38, socket.SOCK_SEQPACKET),
    vsock_socket=_family(40, socket.SOCK_STREAM),
    bluetooth_socket=_family(31),
    xdp_socket=_family(44),
    raw_socket=_family(socket.AF_INET, socket.SOCK_RAW, 1),
)


@probe
def interfaces(_: dict[str, Any]) -> list[str]:
    """Another network interface than its own loopback."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return [name for name in (line.partition(":")[0].strip() for line in lines) if name != "lo"]


def _connects(family: int, address: str | tuple[str, int]) -> list[str]:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        try:
            client.connect(address)
        except OSError:
            return []
    return [f"connected to {address!r}"]


@probe
def host_tcp_port(facts: dict[str, Any]) -> list[str]:
    """A port that the host listens at."""
    return [found for place in facts["tcp"] for found in _connects(socket.AF_INET, (place[0], place[1]))]


@probe
def outside_route(_: dict[str, Any]) -> list[str]:
    """A route to any other machine: choosing one sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        try:
            client.connect(("192.0.2.1", 9))
        except OSError:
            return []
        return [f"from {client.getsockname()}"]


@probe
def host_abstract_socket(facts: dict[str, Any]) -> list[str]:
    """A socket of the host that has no path, and so no permissions."""
    return _connects(socket.AF_UNIX, "\0" + facts["abstract"])


@probe
def host_path_socket(facts: dict[str, Any]) -> list[str]:
    """Sockets of the host that have a path."""
    return [found for path in facts["sockets"] for found in _connects(socket.AF_UNIX, path)]
