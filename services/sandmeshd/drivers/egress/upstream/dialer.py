"""From a target to a connection that the policy allows: one resolution, and to the addresses that it gave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sandmesh.shared.hosts import is_address
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget, Policy, Reach
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.traffic import Traffic
from sandmeshd.drivers.egress.upstream.outlets import Connection, Outlet
from sandmeshd.drivers.egress.upstream.resolver import Resolver


class TargetUnreachable(Exception):
    """A target is allowed and does not answer; the text says why."""


@dataclass(frozen=True)
class Upstream:
    """What all sandboxes of a driver share."""

    settings: EgressSettings
    resolver: Resolver
    outlet: Outlet
    reserved: Reserved


@dataclass(frozen=True)
class _Made:
    target: EgressTarget
    addresses: tuple[str, ...]


class Dialer:
    """Connects to the targets of one sandbox, as its policy of the moment allows."""

    def __init__(self, policy: Policy, upstream: Upstream) -> None:
        self._policy = policy
        self._made: dict[asyncio.Task[object], _Made] = {}
        self.traffic = Traffic()
        self._upstream = upstream
        # All sandboxes share the resolver's threads: one takes a few of them at most.
        self._looking = asyncio.Semaphore(4)

    def change(self, policy: Policy) -> None:
        """Decide by another policy from now on, and cancel the tasks whose connections it does not allow."""
        self._policy = policy
        for task, made in list(self._made.items()):
            if not _allows(policy, made):
                task.cancel()

    async def connect(self, target: EgressTarget) -> Connection:
        """Connect to a target; the current task holds the connection, and is cancelled once the policy forbids it.

        Raises:
            Refused: The policy does not allow it.
            Unreachable: It does not answer.
        """
        try:
            async with asyncio.timeout(self._upstream.settings.connect_seconds):
                while True:
                    policy = self._policy
                    addresses = await self._addresses(target, policy)
                    connection = await self._upstream.outlet.open(target, addresses)
                    if policy is self._policy:
                        self._note(_Made(target, tuple(addresses)))
                        return connection
                    connection[1].close()
        except TimeoutError:
            raise TargetUnreachable(f"{target} does not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise TargetUnreachable(f"{target} cannot be reached: {error}") from None

    def _note(self, made: _Made) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._made[task] = made
            task.add_done_callback(lambda ended: self._made.pop(ended, None))

    async def _addresses(self, target: EgressTarget, policy: Policy) -> list[str]:
        reach = policy.names(target)
        by_name = reach is not Reach.PUBLIC and self._upstream.outlet.takes_names(target)
        if by_name and not is_address(target.host):
            await self._upstream.reserved.check(target, ())
            return []
        found = await self._look_up(target.host)
        if not found:
            raise OSError("it has no address")
        reachable = policy.reachable(target, found, reach)
        await self._upstream.reserved.check(target, reachable)
        return reachable

    async def _look_up(self, host: str) -> list[str]:
        await self._looking.acquire()
        looking = asyncio.ensure_future(self._upstream.resolver.addresses(host))
        looking.add_done_callback(self._looked)
        # A lookup cannot be cancelled: it counts until it is answered, even if it is no longer awaited.
        return await asyncio.shield(looking)

    def _looked(self, looking: asyncio.Future[list[str]]) -> None:
        self._looking.release()
        if not looking.cancelled():
            looking.exception()


def _allows(policy: Policy, made: _Made) -> bool:
    try:
        reach = policy.names(made.target)
        # There are no addresses where an upstream proxy resolved the name.
        return not made.addresses or policy.reachable(made.target, made.addresses, reach) == list(made.addresses)
    except EgressRefused:
        return False
