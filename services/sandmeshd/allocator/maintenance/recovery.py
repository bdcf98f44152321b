"""Recovery: rebuilds the records from the runtimes after the store came back empty, before anything else happens."""

from __future__ import annotations

import asyncio

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable
from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store

log = structlog.get_logger()

_PAUSE_SECONDS = 0.2


class Recovery:
    """Take a mesh from RECOVERING to open; several allocators may do so at the same time."""

    def __init__(self, settings: AllocatorSettings, store: Store, maintenance: MaintenanceStore, nodes: Nodes) -> None:
        self._settings = settings
        self._store = store
        self._maintenance = maintenance
        self._nodes = nodes

    async def run(self, wait_for_nodes: bool = True) -> bool:
        """Rebuild every record that a node knows of, then serve; return whether the mesh is open.

        Sandboxes of a node that does not answer in time are adopted later, when it does.
        """
        silent = list(self._nodes.all)
        ends = asyncio.get_running_loop().time() + (self._settings.recovery_seconds if wait_for_nodes else 0.0)
        while True:
            await self._store.refresh_generation()
            if self._store.is_open:
                return True
            silent = [node for node in silent if not await self._rebuild(node)]
            if not silent or (wait_for_nodes and asyncio.get_running_loop().time() >= ends):
                return await self._maintenance.open()
            if not wait_for_nodes:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _rebuild(self, node: Node) -> bool:
        try:
            info = await node.refresh()
            request = pb.ListSandboxesRequest(mesh_id=self._store.mesh_id)
            found = (await node.client.list_sandboxes(request)).sandboxes
        except SandmeshError as error:
            log.warning("a node's sandboxes cannot be listed", node=node.name, error=error.message)
            return False
        for sandbox in found:
            if is_lost_record(sandbox, self._store.generation):
                await self.try_to_adopt(info, sandbox)
        return True

    async def try_to_adopt(self, info: pb.GetInfoResponse, sandbox: pb.RuntimeSandbox) -> str:
        """Rebuild a record; return the outcome, which is empty where what its labels hold does not fit."""
        try:
            return await self.adopt(info, sandbox)
        except (StoreUnavailable, Recovering):
            raise
        except Exception as error:
            log.warning("a sandbox's record cannot be rebuilt", sandbox_id=sandbox.sandbox_id, error=str(error))
            return ""

    async def adopt(self, info: pb.GetInfoResponse, sandbox: pb.RuntimeSandbox) -> str:
        """Rebuild a record; return the outcome: adopted, known, deleted or taken."""
        kind = await self._maintenance.adopt(info, sandbox)
        log.info("a sandbox without a record", sandbox_id=sandbox.sandbox_id, node=info.node_id, outcome=kind)
        return kind


def is_lost_record(sandbox: pb.RuntimeSandbox, generation: str) -> bool:
    """Return whether a sandbox is in use and its record was lost with an earlier store."""
    labels = sandbox.record_labels
    theirs = labels.get("generation", generation) != generation
    lives = sandbox.state in (pb.RUNTIME_STATE_RUNNING, pb.RUNTIME_STATE_PAUSED)
    return theirs and lives and bool(labels.get("session")) and bool(labels.get("slot"))
