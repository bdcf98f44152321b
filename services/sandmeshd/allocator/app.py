"""Opens an allocator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

from sandmesh.errors import StoreUnavailable
from sandmeshd.allocator.background import Background
from sandmeshd.allocator.claims import Claims
from sandmeshd.allocator.deletions import Deletions
from sandmeshd.allocator.emptying import Emptying
from sandmeshd.allocator.ledger import Ledger
from sandmeshd.allocator.logs import Logs
from sandmeshd.allocator.nodes import DriverClient, Nodes
from sandmeshd.allocator.pools import Pools
from sandmeshd.allocator.servicer import SandboxServicer
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.allocator.starts import Starts
from sandmeshd.allocator.watch import Watch
from sandmeshd.store import Store

log = structlog.get_logger()

_FINISH_SECONDS = 5.0


@asynccontextmanager
async def open_allocator(
    settings: AllocatorSettings, store: Store, drivers: Mapping[str, DriverClient]
) -> AsyncGenerator[SandboxServicer]:
    """Own the records of a mesh, with others of its kind on the same store, until the block ends.

    Its end loses nothing: what it was starting is given up, what it was deleting is taken over by the next one.

    Raises:
        StoreUnavailable: The store does not answer.
    """
    background, filling = Background(), Background()
    ledger = Ledger(store)
    nodes = Nodes(drivers, settings, background)
    starts = Starts(ledger, nodes, background, store.mesh_id, settings.create_timeout_seconds)
    await _sweep_once(settings, ledger)
    await nodes.greet()
    Watch(settings, store, ledger, nodes).open(background)
    Deletions(settings, store, ledger, nodes, starts).open(background)
    Pools(settings, store, ledger, nodes, starts).open(filling)
    background.forever("sweep", lambda: _sweep(settings, ledger))
    try:
        claims, emptying = Claims(store, ledger, nodes, starts, background), Emptying(store, ledger, filling)
        yield SandboxServicer(settings, ledger, claims, emptying, Logs(nodes))
    finally:
        await filling.finish(0.0)
        await background.finish(0.0 if settings.ephemeral else _FINISH_SECONDS)
        with suppress(StoreUnavailable):
            await ledger.farewell()


async def _sweep(settings: AllocatorSettings, ledger: Ledger) -> None:
    await asyncio.sleep(settings.sweep_seconds)
    await _sweep_once(settings, ledger)


async def _sweep_once(settings: AllocatorSettings, ledger: Ledger) -> None:
    expired, abandoned = await ledger.sweep(int(settings.owner_grace_seconds * 1e6))
    if expired or abandoned:
        log.info("records were swept", expired=expired, abandoned=abandoned)
