"""Deletion of released, expired and lost sandboxes, retried until they are gone."""

from __future__ import annotations

import asyncio

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.claims.starter import ClaimStarter
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore, Stopping
from sandmeshd.allocator.maintenance.usage import UsageMeter
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store

log = structlog.get_logger()

_UNKNOWN_NODE_SECONDS = 5.0
_LONGEST_DELAY_SECONDS = 60.0


class Deletions:
    """Take sandboxes from STOPPING to GONE."""

    def __init__(
        self,
        settings: AllocatorSettings,
        store: Store,
        maintenance: MaintenanceStore,
        nodes: Nodes,
        starter: ClaimStarter,
        usage: UsageMeter,
    ) -> None:
        self._settings = settings
        self._notifications = store.notifications
        self._maintenance = maintenance
        self._nodes = nodes
        self._starter = starter
        self._usage = usage
        self._slots = asyncio.Semaphore(settings.delete_concurrency)
        self._failures: dict[str, int] = {}

    def open(self, tasks: BackgroundTasks) -> None:
        """Delete until `tasks` is finished."""
        tasks.forever("delete sandboxes", lambda: self._work(tasks))

    async def _work(self, tasks: BackgroundTasks) -> None:
        with self._notifications.subscribe("stopping") as woken:
            while True:
                woken.clear()
                taken = await self._take()
                if taken:
                    tasks.spawn(self._delete(taken))
                else:
                    if self._failures:
                        tasks.rounds.use()
                    await wait_with_timeout(woken, tasks.rounds.seconds(self._settings.poll_seconds))

    async def _take(self) -> Stopping | None:
        """Take a sandbox to delete, once the concurrency limit allows it; `_delete` frees the slot."""
        await self._slots.acquire()
        taken: Stopping | None = None
        # Another worker may take it when this one has timed out.
        hold_us = int((self._settings.delete_timeout_seconds + 5) * 1e6)
        try:
            save_us = int(self._settings.workspace_seconds * 1e6)
            taken = await self._maintenance.take_stopping(hold_us, hold_us + save_us)
        finally:
            if taken is None:
                self._slots.release()
        return taken

    async def _delete(self, taken: Stopping) -> None:
        try:
            await self._call_driver(taken)
        except (StoreUnavailable, Recovering) as error:
            log.warning("a deletion waits for the store", sandbox_id=taken.sandbox_id, error=error.message)
        except Exception:
            log.exception("a driver failed unexpectedly", sandbox_id=taken.sandbox_id, node=taken.node_id)
        finally:
            self._slots.release()

    async def _call_driver(self, taken: Stopping) -> None:
        sandbox_id, node_id = taken.sandbox_id, taken.node_id
        node = self._nodes.by_id(node_id)
        if node is None:
            # If the node comes back after all, the sandbox is an orphan there.
            if not await self._maintenance.gone(sandbox_id, only_if_silent=True):
                trouble = f"node {node_id} is not known here"
                await self._maintenance.defer(sandbox_id, int(_UNKNOWN_NODE_SECONDS * 1e6), trouble)
            return
        await self._starter.cancel(sandbox_id)
        request = pb.DeleteSandboxRequest(
            sandbox_id=sandbox_id, workspace_key=taken.workspace, fencing_token=taken.token
        )
        longer = self._settings.workspace_seconds if taken.workspace else 0.0
        try:
            async with asyncio.timeout(self._settings.delete_timeout_seconds + longer):
                deleted = await node.client.delete_sandbox(request)
        except (SandmeshError, TimeoutError) as error:
            await self._retry_later(taken, str(error) or "the driver did not answer in time")
        else:
            self._failures.pop(sandbox_id, None)
            await self._usage.end_egress(sandbox_id, deleted.egress_bytes)
            await self._maintenance.gone(sandbox_id)

    async def _retry_later(self, taken: Stopping, error: str) -> None:
        sandbox_id = taken.sandbox_id
        if await self._maintenance.gone(sandbox_id, only_if_silent=True):
            self._failures.pop(sandbox_id, None)
            if taken.workspace:
                log.warning("a workspace was not saved: its node is gone", sandbox_id=sandbox_id, node=taken.node_id)
            return
        count = self._failures.get(sandbox_id, 0)
        self._failures[sandbox_id] = count + 1
        delay = min(0.2 * 2**count, _LONGEST_DELAY_SECONDS)
        log.warning("a sandbox could not be deleted yet", sandbox_id=sandbox_id, error=error, retry_in=delay)
        await self._maintenance.defer(sandbox_id, int(delay * 1e6), error, unsaved=bool(taken.workspace))
