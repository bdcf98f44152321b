"""The driver of a cluster's pods: DriverService's methods over the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import (
    AlreadyExists,
    InvalidArgument,
    LeaseLost,
    SandboxLost,
    SandboxStartFailed,
    SandmeshError,
)
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.connection import installing_token, read_record
from sandmeshd.agentlink.warm_links import WaitingLink
from sandmeshd.drivers.api.requirements import check_id
from sandmeshd.drivers.api.views import ViewedSandboxes
from sandmeshd.drivers.kubernetes.cluster.lease import HeldLease
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.names import object_name
from sandmeshd.drivers.kubernetes.pods.deletion import Deleter
from sandmeshd.drivers.kubernetes.pods.planner import Planner
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from sandmeshd.drivers.kubernetes.pods.reasons import state_of
from sandmeshd.drivers.kubernetes.pods.start import Plan, Starter
from sandmeshd.drivers.kubernetes.pods.watch import PodWatcher
from sandmeshd.drivers.kubernetes.policy import remove_policy
from sandmeshd.drivers.kubernetes.reach import PodReach
from sandmeshd.drivers.kubernetes.records import PodRecords
from sandmeshd.drivers.kubernetes.requirements import NAME, capabilities, check, enforceable
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.node.driver import FixedGrants
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.runtime.keyed_locks import KeyedLocks

ENDED = pb.RUNTIME_STATE_ENDED


class PodView:
    """The sandboxes of one mesh."""

    def __init__(self, mesh_id: str, records: PodRecords, watcher: PodWatcher, reach: PodReach) -> None:
        self._mesh_id = mesh_id
        self._records = records
        self._watcher = watcher
        self._reach = reach

    def find(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox, None if nothing of it is left."""
        name, record = object_name(self._mesh_id, sandbox_id), self._records.find(sandbox_id)
        pod = self._watcher.find(name)
        if record is None:
            if pod is None:
                return None
            detail = "nothing is known of it"
            return pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=self._mesh_id, state=ENDED, end_detail=detail)
        sandbox = pb.RuntimeSandbox()
        sandbox.CopyFrom(record.sandbox)
        sandbox.endpoint = self._reach.endpoint(name, sandbox.endpoint)
        if self._watcher.is_starting(name) or sandbox.state == ENDED:
            return sandbox
        state, detail = state_of(pod) if pod else (ENDED, self._watcher.why_gone(name))
        if pod and state != ENDED and _is_another(pod, record.sandbox):
            state, detail = ENDED, "its pod was replaced by another"
        # What runs goes on while its claim is not ready for a moment.
        if state == ENDED:
            sandbox.state, sandbox.end_detail = state, detail
        return sandbox

    def all(self) -> list[pb.RuntimeSandbox]:
        """Return every sandbox that has left anything, by id."""
        ids = sorted(self._records.sandbox_ids() | self._watcher.sandbox_ids())
        return [sandbox for sandbox_id in ids if (sandbox := self.find(sandbox_id)) is not None]


def _is_another(pod: Mapping[str, Any], sandbox: pb.RuntimeSandbox) -> bool:
    """Return whether a pod is not the one that became a sandbox: agent-sandbox recreates one that is deleted."""
    address = str(pod["status"].get("podIP") or "")
    return bool(address and sandbox.endpoint) and not sandbox.endpoint.startswith(tls_endpoint(address, AGENT_PORT, ""))


TAIL_BYTES = 64 * 1024
ADOPTIONS_AT_ONCE = 32

log = structlog.get_logger()


@dataclass(frozen=True)
class World:
    """What a driver finds outside: the cluster, its pods, and the way to them."""

    cluster: Cluster
    watcher: PodWatcher
    reach: PodReach
    lease: HeldLease
    version: tuple[int, int]


class KubernetesDriver(ViewedSandboxes, FixedGrants):
    """One mesh's sandboxes in a namespace; opened by `open_driver`."""

    def __init__(self, settings: KubernetesSettings, world: World, planner: Planner) -> None:
        self._settings = settings
        self._cluster = cluster = world.cluster
        self._watcher = watcher = world.watcher
        self._world = world
        self._planner = planner
        where = "pool" if settings.warm_pools else settings.workspace
        self._able = enforceable(world.version, where, planner.proofs)
        self._records = PodRecords(cluster, settings.paths.mesh_id, planner.kind)
        view = PodView(settings.paths.mesh_id, self._records, watcher, world.reach)
        super().__init__(NAME, settings.paths.mesh_id, view, watcher)
        self._deleter = Deleter(cluster, watcher, planner.kind)
        self._starter = Starter(settings, cluster, watcher, self._records, world.reach)
        self._locks = KeyedLocks()
        self._warm_links = WaitingLink()
        self._asking = asyncio.Semaphore(ADOPTIONS_AT_ONCE)

    async def adopt(self) -> None:
        """Read what earlier drivers of the mesh wrote, and which pods there are."""
        await self._records.load()
        await self._watcher.list()
        for sandbox_id in self._records.sandbox_ids():
            name = object_name(self._mesh_id, sandbox_id)
            await self._world.reach.open(name, self._watcher.pod_name(name))
        async with asyncio.TaskGroup() as asking:
            for sandbox in self._view.all():
                if self._is_unused(sandbox):
                    asking.create_task(self._ask(sandbox))

    async def _ask(self, sandbox: pb.RuntimeSandbox) -> None:
        """Ask the agent of an unclaimed one whether it still is, and keep a link to it then."""
        try:
            async with self._asking:
                self._records.recall(sandbox.sandbox_id, await read_record(sandbox))
        except SandmeshError as error:
            log.warning(
                "whether a sandbox was claimed is not known", sandbox_id=sandbox.sandbox_id, error=error.message
            )
        self._keep_link(sandbox)

    def _is_unused(self, sandbox: pb.RuntimeSandbox) -> bool:
        record = self._records.find(sandbox.sandbox_id)
        return record is not None and not record.fencing_token and sandbox.state == pb.RUNTIME_STATE_RUNNING

    def _keep_link(self, sandbox: pb.RuntimeSandbox) -> None:
        """Open a link ahead to one that was never claimed."""
        if self._is_unused(sandbox):
            self._warm_links.keep(sandbox)

    async def close(self) -> None:
        """Delete the sandboxes that end with the driver; the others go on."""
        self._warm_links.close()
        await self._records.close()
        if not self._settings.ends_with_driver:
            return
        with suppress(SandmeshError):
            await asyncio.gather(*(self._delete(sandbox.sandbox_id) for sandbox in self._view.all()))
            if not self._settings.warm_pools:
                await remove_policy(self._cluster, self._mesh_id)

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        major, minor = self._world.version
        return pb.GetInfoResponse(
            name=NAME,
            node_id=self._settings.node_id,
            runtime_version=f"Kubernetes {major}.{minor}, namespace {self._cluster.namespace}",
            capabilities=capabilities(
                self._able,
                self._settings.posture,
                self._planner.proofs.isolation,
                images=self._planner.unmodified.able,
                root=self._planner.unmodified.root_able,
            ),
            templates=self._planner.templates.describe(),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Check a template: its image is pulled by each machine that gets a sandbox of it."""
        await self._planner.templates.runtime_class(self._planner.templates.find(request.template))
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent answers."""
        check_id(request.sandbox_id)
        self._world.lease.check()
        if request.mesh_id != self._mesh_id:
            message = f"this driver serves the mesh {self._mesh_id!r}, not {request.mesh_id!r}"
            raise InvalidArgument(message, {"field": "mesh_id"})
        async with self._locks.held(request.sandbox_id):
            sandbox = self._repeated(request) or await self._create(request)
            return pb.CreateSandboxResponse(sandbox=sandbox)

    def _repeated(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox | None:
        record = self._records.find(request.sandbox_id)
        if record is None:
            return None
        if record.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        # A sandbox whose start a killed driver left unfinished is created again.
        unfinished = record.sandbox.state == pb.RUNTIME_STATE_STARTING
        return None if unfinished else self._view.find(request.sandbox_id)

    async def _create(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = self._planner.templates.find(request.spec.template)
        check(request, self._able, on_volumes=self._settings.workspace == "volume")
        self._planner.unmodified.check(request.spec)
        plan = await self._planner.plan(request, template, self._able)
        if self._view.find(request.sandbox_id) is not None:
            await self._remove(request.sandbox_id)
        try:
            if not await self._records.create(plan.record, plan.files):
                return await self._adopted(request)
            sandbox = await self._starter.start(plan)
        except BaseException:
            await to_the_end(self._undo(plan))
            raise
        self._watcher.changed(request.sandbox_id)
        self._keep_link(sandbox)
        return sandbox

    async def _adopted(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        """Return a sandbox of which another driver of the mesh wrote the record."""
        await self._watcher.list()
        sandbox = self._repeated(request)
        if sandbox is None:
            detail = "another driver of the mesh had begun to start it"
            raise SandboxStartFailed(f"{request.sandbox_id} could not be started: {detail}", {"detail": detail})
        return sandbox

    async def _undo(self, plan: Plan) -> None:
        found = self._records.find(plan.record.sandbox.sandbox_id)
        if found is not None and found.sandbox.agent_token != plan.record.sandbox.agent_token:
            # It is another driver's, and runs.
            return
        # What is left where the API server does not answer is listed, so that the allocator removes it later.
        with suppress(SandmeshError):
            await self._remove(plan.record.sandbox.sandbox_id)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Delete a sandbox's pod and Secret; return when both are gone."""
        check_id(request.sandbox_id)
        await self._delete(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    async def _delete(self, sandbox_id: str) -> None:
        # Without its pod a create in progress fails immediately and releases the lock.
        await self._deleter.delete(object_name(self._mesh_id, sandbox_id))
        async with self._locks.held(sandbox_id):
            if self._view.find(sandbox_id) is not None:
                await to_the_end(self._remove(sandbox_id))
                self._watcher.changed(sandbox_id)

    async def _remove(self, sandbox_id: str) -> None:
        name = object_name(self._mesh_id, sandbox_id)
        self._warm_links.drop(sandbox_id)
        await self._deleter.delete(name)
        await self._records.remove(sandbox_id)
        self._watcher.forget(name)
        await self._world.reach.close(name)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        async with self._locks.held(request.sandbox_id):
            sandbox = self._existing(request.sandbox_id)
            if sandbox.state == pb.RUNTIME_STATE_ENDED:
                raise SandboxLost(f"{request.sandbox_id} ended", {"detail": sandbox.end_detail})
            record = self._records.find(request.sandbox_id)
            if record is None or request.fencing_token < record.fencing_token:
                raise LeaseLost(f"the fencing token {request.fencing_token} is older than the one in force")
            renewed = pb.RuntimeSandbox()
            renewed.CopyFrom(record.sandbox)
            renewed.record_labels.clear()
            renewed.record_labels.update(request.record_labels)
            await self._install(sandbox, record, SpecRecord(renewed, request.fencing_token))
        return pb.InstallTokenResponse()

    async def _install(self, sandbox: pb.RuntimeSandbox, record: SpecRecord, renewed: SpecRecord) -> None:
        kept = self._warm_links.take(sandbox.sandbox_id)
        # The next driver asks the agents of unclaimed ones, once no other driver is active.
        sealed = b"" if record.fencing_token or not self._world.lease.is_sure else self._records.seal(renewed)
        async with installing_token(sandbox, renewed.fencing_token, kept.link if kept else None, sealed):
            if not sealed:
                # Written while the agent reads: where it refuses or is gone, the sandbox is given up.
                await self._records.write(renewed)
        if sealed:
            self._records.write_late(renewed)

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of what the agent wrote, as the kubelet kept it."""
        self._existing(request.sandbox_id)
        pod = self._watcher.pod_name(object_name(self._mesh_id, request.sandbox_id))
        data = await self._cluster.text(f"{self._cluster.path('pods', pod)}/log")
        after = request.after_offset if request.after_offset <= len(data) else 0
        begin = max(after, len(data) - (request.tail_bytes or TAIL_BYTES))
        return pb.GetLogsResponse(data=data[begin:], end_offset=len(data))
