"""The removal of volumes and networks whose container is gone, however removed: a crashed engine may leave some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set

import structlog
from aiodocker import DockerError

from sandmesh.errors import SandmeshError
from sandmeshd.drivers.engine.container_config import SANDBOX
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.events import EventSubscriber

INTERVAL_SECONDS = 1.0

log = structlog.get_logger()


class GarbageCollector:
    """Removes the unused volumes and networks that have some labels."""

    def __init__(self, engine: Engine, labels: Sequence[str], events: EventSubscriber, *, networks: bool) -> None:
        """Collect networks too if `networks`, where each container has a separate one."""
        self._engine = engine
        self._labels = labels
        self._events = events
        self._networks = networks

    async def collect(self) -> None:
        """Collect forever, whenever containers were removed."""
        unused: Set[str] = set()
        while True:
            await self._events.removed.wait()
            self._events.removed.clear()
            try:
                unused = await self._sweep(unused)
            except (SandmeshError, DockerError) as error:
                # The engine's return triggers another attempt.
                log.debug("unused volumes could not be listed", reason=str(error))
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _sweep(self, before: Set[str]) -> Set[str]:
        """Remove what is unused twice in a row, as the engine itself takes a moment; return the rest."""
        volumes = await self._engine.unused_volumes(*self._labels)
        for name in volumes & before:
            await self._engine.remove_volume(name)
            log.info("a volume without a container is removed", volume=name)
        networks = await self._unused_networks()
        for name in networks & before:
            await self._engine.remove_network(name)
            log.info("a network without a container is removed", network=name)
        remaining = (volumes | networks) - before
        if remaining:
            self._events.removed.set()
        return remaining

    async def _unused_networks(self) -> Set[str]:
        if not self._networks:
            return set()
        networks = await self._engine.unused_networks(*self._labels)
        # The network of a sandbox that is being started has no container yet.
        return {name for name, labels in networks.items() if not self._events.is_starting(labels.get(SANDBOX, ""))}
