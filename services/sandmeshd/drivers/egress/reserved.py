"""What no grant reaches: where the mesh's own services listen, and what its operator reserves."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from sandmesh.shared.hosts import NamedHost, is_address
from sandmeshd.contracts.public_addresses import is_own
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.upstream.resolver import Resolver
from sandmeshd.runtime.listeners import Address, Listeners


class Reserved:
    """The addresses that are refused whatever the grant."""

    def __init__(self, resolver: Resolver, hosts: Sequence[NamedHost] = (), listeners: Listeners | None = None) -> None:
        self._resolver = resolver
        self._hosts = hosts
        self._listeners = listeners

    async def check(self, target: EgressTarget, addresses: Sequence[str]) -> None:
        """Check a target and the addresses it was resolved to, none where an upstream proxy resolves it.

        Raises:
            Refused: It is reserved.
        """
        for host in self._hosts:
            if host.allows(target.port) and (host.covers(target.host) or await self._is_at(host.host, addresses)):
                raise _refused(target, "is reserved by this mesh's operator")
        for address in self._listeners.all() if self._listeners else ():
            if await self._leads_to(target, addresses, address):
                raise _refused(target, "is a service of the mesh itself")

    async def _leads_to(self, target: EgressTarget, addresses: Sequence[str], service: Address) -> bool:
        host, port = service
        if port != target.port:
            return False
        return host == target.host or await self._is_at(host, addresses)

    async def _is_at(self, host: str, addresses: Sequence[str]) -> bool:
        places = await self._places(host)
        if any(map(_is_here, places)) and any(map(_is_here, addresses)):
            return True
        return not {_plain(place) for place in places}.isdisjoint(map(_plain, addresses))

    async def _places(self, host: str) -> list[str]:
        if is_address(host):
            return [host]
        try:
            return await self._resolver.addresses(host)
        except OSError:
            return []


def _is_here(address: str) -> bool:
    # A service that listens at the unspecified address listens at all of this machine's.
    return ip_address(address).is_unspecified or is_own(address)


def _plain(address: str) -> str:
    found = ip_address(address)
    return str(getattr(found, "ipv4_mapped", None) or found)


def _refused(target: EgressTarget, what: str) -> EgressRefused:
    return EgressRefused(target.host, target.port, f"{target} {what}", "No grant allows it.")
