"""From a target to a connection that the policy allows: one resolution, and to the addresses that it gave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sandmesh.shared.hosts import is_address
from sandmeshd.drivers.egress.outlets import Connection, Outlet
from sandmeshd.drivers.egress.policy import Policy, Reach, Target
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.resolver import Resolver
from sandmeshd.drivers.egress.settings import EgressSettings


class Unreachable(Exception):
    """A target is allowed and does not answer; the text says why."""


@dataclass(frozen=True)
class Upstream:
    """What all sandboxes of a driver share."""

    settings: EgressSettings
    resolver: Resolver
    outlet: Outlet
    reserved: Reserved


class Dialer:
    """Connects to the targets of one sandbox."""

    def __init__(self, policy: Policy, upstream: Upstream) -> None:
        self._policy = policy
        self._upstream = upstream
        # All sandboxes share the resolver's threads: one takes a few of them at most.
        self._looking = asyncio.Semaphore(4)

    async def connect(self, target: Target) -> Connection:
        """Connect to a target.

        Raises:
            Refused: The policy does not allow it.
            Unreachable: It does not answer.
        """
        reach = self._policy.names(target)
        try:
            async with asyncio.timeout(self._upstream.settings.connect_seconds):
                addresses = await self._addresses(target, reach)
                return await self._upstream.outlet.open(target, addresses)
        except TimeoutError:
            raise Unreachable(f"{target} does not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{target} cannot be reached: {error}") from None

    async def _addresses(self, target: Target, reach: Reach) -> list[str]:
        by_name = reach is not Reach.PUBLIC and self._upstream.outlet.takes_names(target)
        if by_name and not is_address(target.host):
            await self._upstream.reserved.check(target, ())
            return []
        found = await self._look_up(target.host)
        if not found:
            raise OSError("it has no address")
        reachable = self._policy.reachable(target, found, reach)
        await self._upstream.reserved.check(target, reachable)
        return reachable

    async def _look_up(self, host: str) -> list[str]:
        await self._looking.acquire()
        looking = asyncio.ensure_future(self._upstream.resolver.addresses(host))
        looking.add_done_callback(self._looked)
        # A lookup cannot be cancelled: it counts until it is answered, whoever still waits for it.
        return await asyncio.shield(looking)

    def _looked(self, looking: asyncio.Future[list[str]]) -> None:
        self._looking.release()
        if not looking.cancelled():
            looking.exception()
