"""What one sandbox may reach: decided by name first, then by address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from sandmesh.shared.hosts import WEB_PORTS, NamedHost, is_address, read_host
from sandmeshd.contracts.public_addresses import is_never_reached, is_of_network, kind_of


class Reach(IntEnum):
    """Which addresses of an allowed host may be connected to."""

    PUBLIC = 0
    """Public ones: only its domain is granted, or all public hosts are."""

    NETWORK = 1
    """Those of private networks too: its name is granted, and its DNS chooses the addresses."""

    ANY = 2
    """All that stand for one host: the address itself is granted, or the node's configuration names this machine."""


@dataclass(frozen=True)
class EgressTarget:
    """Where a program inside wants to go; the host is in its plain form."""

    host: str
    port: int

    def __str__(self) -> str:
        """Write it as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def named(self) -> str:
        """How a grant would name it."""
        return str(NamedHost(self.host, None if self.port in WEB_PORTS else self.port))


class EgressRefused(Exception):
    """The policy does not let a connection out."""

    def __init__(self, host: str, port: int, reason: str, fix: str) -> None:
        super().__init__(f"{reason}. {fix}")
        self.host = host
        self.port = port
        self.reason = reason
        self.fix = fix


@dataclass(frozen=True)
class Policy:
    """A grant, read."""

    public: bool
    hosts: tuple[NamedHost, ...]
    private: bool
    """Whether hosts that are named by their exact name or address may have addresses that are not public."""

    indexes: tuple[NamedHost, ...] = ()
    """Hosts that the node's own configuration names; they may be private in any case."""

    advice: str = "This mesh lets no sandbox reach such addresses."
    """What a refusal says where they may not."""

    def names(self, target: EgressTarget) -> Reach:
        """Return which addresses of a host may be connected to.

        Raises:
            Refused: The grant does not have it, or not with that port.
        """
        covering = [host for host in (*self.hosts, *self.indexes) if host.covers(target.host)]
        allowing = [host for host in covering if host.allows(target.port)]
        if allowing:
            return max(self._reach(host) for host in allowing)
        if self.public and target.port in WEB_PORTS:
            return Reach.PUBLIC
        if covering or self.public:
            ports = sorted({str(host).rpartition(":")[2] for host in covering if host.port is not None})
            has = ", ".join(ports) or "80 and 443"
            raise _refused(target, f"port {target.port} of {target.host} is not granted, only {has}")
        raise _refused(target, f"{target.host} is not among the hosts that this sandbox may reach")

    def _reach(self, host: NamedHost) -> Reach:
        configured = host in self.indexes
        if host.below or not (self.private or configured):
            return Reach.PUBLIC
        return Reach.ANY if is_address(host.host) or (configured and host.host == "localhost") else Reach.NETWORK

    def reachable(self, target: EgressTarget, addresses: Sequence[str], reach: Reach) -> list[str]:
        """Return those of a host's addresses that may be connected to.

        Raises:
            Refused: None may.
        """
        if reach is Reach.ANY:
            found = [address for address in addresses if not is_never_reached(address)]
        elif reach is Reach.NETWORK:
            found = [address for address in addresses if is_of_network(address)]
        else:
            found = [address for address in addresses if not kind_of(address)]
        if not found:
            raise self._misplaced(target, addresses[0])
        return found

    def _misplaced(self, target: EgressTarget, address: str) -> EgressRefused:
        where = address if is_address(target.host) else f"{target.host} is at {address}, which"
        reason = f"{where} is {kind_of(address)}, not public"
        if not self.private:
            return EgressRefused(target.host, target.port, reason, self.advice)
        if is_never_reached(address):
            return EgressRefused(target.host, target.port, reason, "It stands for no single host: no grant allows it.")
        if is_address(target.host) or is_of_network(address):
            return _refused(target, reason)
        literal = EgressTarget(address, target.port).named
        fix = f'A name never leads there, only the address itself in the grant: network=["{literal}"]'
        return EgressRefused(target.host, target.port, reason, fix)


def _refused(target: EgressTarget, reason: str) -> EgressRefused:
    name = target.named
    fix = f'To allow it, create the sandbox with network=["{name}"] or: sandmesh run --network {name}'
    return EgressRefused(target.host, target.port, reason, fix)


def read_hosts(hosts: Iterable[str]) -> tuple[NamedHost, ...]:
    """Read the hosts of a grant, presets left out.

    Raises:
        InvalidArgument: One is none.
    """
    return tuple(read_host(host) for host in hosts)
