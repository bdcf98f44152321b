"""Bytes and connections of one sandbox, by host."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.egress.policy import EgressTarget
from sandmeshd.drivers.egress.streams import ProxyStream

_MOST, _OTHERS = 256, "others"


@dataclass
class _Host:
    connections: int = 0
    sent: int = 0
    received: int = 0
    open: set[ProxyStream] = field(default_factory=set[ProxyStream])


class Traffic:
    """What went to each host; of many hosts, the later ones are counted together."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    @contextmanager
    def counted(self, target: EgressTarget, stream: ProxyStream) -> Generator[None]:
        """Count a connection and what its stream carries until the block ends."""
        name = str(target)
        if name not in self._hosts and len(self._hosts) >= _MOST:
            name = _OTHERS
        host = self._hosts.setdefault(name, _Host())
        host.connections += 1
        host.open.add(stream)
        try:
            yield
        finally:
            host.open.discard(stream)
            host.sent += stream.bytes_read
            host.received += stream.bytes_written

    def bytes(self) -> int:
        """Return the bytes to and from all hosts."""
        closed = sum(host.sent + host.received for host in self._hosts.values())
        open_streams = (stream for host in self._hosts.values() for stream in host.open)
        return closed + sum(stream.bytes_read + stream.bytes_written for stream in open_streams)

    def hosts(self) -> list[pb.HostTraffic]:
        """Return the counts by host, in the order of their first connections."""
        return [
            pb.HostTraffic(
                host=name,
                connections=host.connections,
                open_connections=len(host.open),
                sent_bytes=host.sent + sum(stream.bytes_read for stream in host.open),
                received_bytes=host.received + sum(stream.bytes_written for stream in host.open),
            )
            for name, host in self._hosts.items()
        ]
