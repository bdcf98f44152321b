"""The bubblewrap driver: DriverService's methods over folders, locks and bwrap."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import NoReturn

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    AlreadyExists,
    CapabilityMissing,
    InvalidArgument,
    SandboxLost,
    SandboxNotFound,
    SandboxStartFailed,
)
from sandmeshd.agentlink.warm_links import Waiting
from sandmeshd.drivers.bubblewrap.agent_config import agent_config, new_record
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import remove_groups
from sandmeshd.drivers.bubblewrap.exec_start import Plan
from sandmeshd.drivers.bubblewrap.fork_start import shared_variables
from sandmeshd.drivers.bubblewrap.probe import Probe
from sandmeshd.drivers.bubblewrap.requirements import NAME, capabilities, check, wanted
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.start_modes import Ways
from sandmeshd.drivers.bubblewrap.supplies import Supplies
from sandmeshd.drivers.bubblewrap.tracker import Tracker
from sandmeshd.drivers.node.deletion import discard, finish_removals
from sandmeshd.drivers.node.disk_space import lacks_room
from sandmeshd.drivers.node.host_directories import opened
from sandmeshd.drivers.node.keyed_locks import KeyedLocks
from sandmeshd.drivers.node.processes import end, find, to_the_end
from sandmeshd.drivers.node.records import Folder, Folders, hand_over, observe, read_record
from sandmeshd.drivers.snapshots import Snapshots
from sandmeshd.runtime.full_disk import full_disk_explained

TAIL_BYTES = 64 * 1024


class BubblewrapDriver:
    """One mesh's sandboxes on this machine; opened by `open_driver`."""

    def __init__(
        self, settings: BubblewrapSettings, supplies: Supplies, ways: Ways, probe: Probe, user_filter: bytes
    ) -> None:
        self._settings = settings
        self._supplies = supplies
        self._ways = ways
        self._probe = probe
        self._user_filter = user_filter
        self._folders = Folders(settings.paths)
        self._tracker = Tracker()
        self._snapshots = Snapshots(settings.paths, settings.snapshot_bytes)
        self._locks = KeyedLocks()
        self._waiting = Waiting()
        self._standing_by: set[asyncio.Task[None]] = set()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Say what the driver is and can do, after trying whether it can."""
        return pb.GetInfoResponse(
            name=NAME,
            node_id=self._settings.node_id,
            runtime_version=f"{await self._probe.version()} ({self._ways.describe()})",
            capabilities=capabilities(self._ways.groups.enforceable),
            templates=self._supplies.describe(),
            troubles=lacks_room(self._settings.paths),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build what a template is made of."""
        async with aclosing(self._supplies.prepare(self._supplies.template(request.template))) as steps:
            async for step in steps:
                yield pb.PrepareTemplateResponse(message=step.message, fraction=step.fraction)
        self._stand_by()
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Make a sandbox; return when its agent listens."""
        folder = self._folders.folder(request.sandbox_id)
        if request.mesh_id != self._settings.paths.mesh_id:
            message = f"this driver serves the mesh {self._settings.paths.mesh_id!r}, not {request.mesh_id!r}"
            raise InvalidArgument(message, {"field": "mesh_id"})
        async with self._locks.held(request.sandbox_id):
            present = self._present(folder, request)
            if present is not None:
                return pb.CreateSandboxResponse(sandbox=present)
            await self._probe.version()
            with full_disk_explained(self._settings.paths.sandboxes):
                return pb.CreateSandboxResponse(sandbox=await self._create(folder, request))

    def _present(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox | None:
        record = read_record(folder)
        if record is None:
            return None
        if record.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        # What a killed driver half made is made again.
        half_made = record.sandbox.state == pb.RUNTIME_STATE_STARTING
        return None if half_made else observe(folder, request.mesh_id)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = self._supplies.template(request.spec.template)
        groups = self._ways.groups.enforceable
        check(request, groups)
        self._snapshots.check(request.spec)
        mounts = self._supplies.mounts(template, folder, request.spec.limits)
        record = new_record(request, folder, self._settings, groups)
        config = agent_config(record, template, self._user_filter, self._settings)
        with opened(request.spec, self._settings.workspace_rules) as workspace:
            mounts = replace(mounts, workspace_fd=workspace.fd if workspace else None)
            variables = shared_variables(template)
            return await self._made(Plan(folder, record, mounts, config, wanted(request.spec.limits), variables))

    async def _made(self, plan: Plan) -> pb.RuntimeSandbox:
        await self._remove(plan.folder)
        try:
            return await self._start(plan)
        except BaseException:
            await to_the_end(self._remove(plan.folder))
            raise

    async def _remove(self, folder: Folder) -> None:
        self._waiting.drop(folder.sandbox_id)
        if not folder.is_there():
            return
        await end(folder)
        await self._tracker.settled(folder)
        await remove_groups(folder)
        await asyncio.to_thread(discard, folder)

    async def _start(self, plan: Plan) -> pb.RuntimeSandbox:
        held = await self._ways.start(plan)
        processes = find(plan.folder)
        if processes is None:
            if held is not None:
                os.close(held)
            detail = plan.folder.end_detail()
            raise SandboxStartFailed(f"{plan.folder.sandbox_id} ended as soon as it listened", {"detail": detail})
        self._tracker.follow(plan.folder, processes, held)
        await self._snapshots.restore(plan.record.sandbox, plan.record.fencing_token)
        plan.record.sandbox.state = pb.RUNTIME_STATE_RUNNING
        plan.record.write(plan.folder)
        self._tracker.changed(plan.folder.sandbox_id)
        if not plan.record.fencing_token:
            self._waiting.keep(plan.record.sandbox)
        return plan.record.sandbox

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Say what the folder and its lock tell."""
        return pb.InspectSandboxResponse(sandbox=self._found(request.sandbox_id))

    def _found(self, sandbox_id: str) -> pb.RuntimeSandbox:
        found = observe(self._folders.folder(sandbox_id), self._settings.paths.mesh_id)
        if found is None:
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return found

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every folder of the mesh."""
        return pb.ListSandboxesResponse(sandboxes=self._list(request.mesh_id))

    def _list(self, mesh_id: str) -> list[pb.RuntimeSandbox]:
        if mesh_id != self._settings.paths.mesh_id:
            return []
        seen = [observe(folder, mesh_id) for folder in self._folders.all()]
        return [sandbox for sandbox in seen if sandbox is not None]

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """End a sandbox's processes and remove its folders."""
        await self._delete(self._folders.folder(request.sandbox_id))
        return pb.DeleteSandboxResponse()

    async def _delete(self, folder: Folder) -> None:
        # Without its processes a create that is under way fails at once and lets go of the id.
        await end(folder)
        async with self._locks.held(folder.sandbox_id):
            if folder.is_there():
                await to_the_end(self._remove(folder))
                self._tracker.changed(folder.sandbox_id)

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        with self._tracker.watching() as changes:
            for sandbox in self._list(request.mesh_id):
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            async with aclosing(changes.follow()) as ids:
                async for sandbox_id in ids:
                    if request.mesh_id == self._settings.paths.mesh_id:
                        yield pb.WatchSandboxesResponse(sandbox=self._seen(sandbox_id))

    def _seen(self, sandbox_id: str) -> pb.RuntimeSandbox:
        mesh_id = self._settings.paths.mesh_id
        gone = pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=mesh_id, state=pb.RUNTIME_STATE_ENDED)
        return observe(self._folders.folder(sandbox_id), mesh_id) or gone

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            try:
                await hand_over(folder, request, self._waiting)
            except (SandboxLost, SandboxNotFound):
                # Its folder is looked at only where the agent does not answer.
                sandbox = self._found(request.sandbox_id)
                if sandbox.state == pb.RUNTIME_STATE_ENDED:
                    raise SandboxLost(f"{request.sandbox_id} ended", {"detail": sandbox.end_detail}) from None
                raise
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Give the end of what agent and bwrap wrote."""
        self._found(request.sandbox_id)
        folder = self._folders.folder(request.sandbox_id)
        data, end = folder.tail(request.tail_bytes or TAIL_BYTES, request.after_offset)
        return pb.GetLogsResponse(data=data, end_offset=end)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        self._refuse(request.sandbox_id, "pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        self._refuse(request.sandbox_id, "pause")

    def _refuse(self, sandbox_id: str, needs: str) -> NoReturn:
        self._found(sandbox_id)
        raise CapabilityMissing(f"the bubblewrap driver has no {needs}: choose another driver", {"needs": needs})

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home, which user code leaves as they are meanwhile."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            sandbox, record = self._found(request.sandbox_id), read_record(folder)
            return await self._snapshots.take(request, sandbox, record.fencing_token if record else 0)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the node's snapshots."""
        return self._snapshots.list(request.mesh_id)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot's files."""
        return await self._snapshots.delete(request.snapshot_id)

    async def adopt(self) -> None:
        """Follow what lives already, and finish removals that were begun."""
        await asyncio.to_thread(finish_removals, self._folders)
        await asyncio.to_thread(self._snapshots.sweep)
        await self._ways.groups.sweep({folder.sandbox_id for folder in self._folders.all()})
        for folder in self._folders.all():
            processes = find(folder)
            if processes is not None:
                self._tracker.follow(folder, processes)
        self._stand_by()

    def _stand_by(self) -> None:
        if self._settings.stands_by:
            some = self._folders.folder("any")
            for template in self._supplies.prepared():
                mounts = self._supplies.mounts(template, some, sandbox_pb2.Limits())
                task = asyncio.create_task(self._ways.stand_by(mounts, shared_variables(template)))
                self._standing_by.add(task)
                task.add_done_callback(self._standing_by.discard)

    async def close(self) -> None:
        """Let go of the sandboxes; those that end with the driver are deleted."""
        try:
            if self._settings.ends_with_driver:
                await asyncio.gather(*(self._delete(folder) for folder in self._folders.all()))
        finally:
            self._waiting.close()
            for task in self._standing_by:
                task.cancel()
            if self._standing_by:
                await asyncio.wait(set(self._standing_by))
            await self._ways.close()
            await self._tracker.close()
