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
from sandmesh.errors import CapabilityMissing, SandboxStartFailed
from sandmeshd.drivers.bubblewrap.agent_config import agent_config, new_record
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import remove_groups
from sandmeshd.drivers.bubblewrap.exec_start import Plan
from sandmeshd.drivers.bubblewrap.probe import Probe
from sandmeshd.drivers.bubblewrap.requirements import NAME, capabilities, check, group_limits
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import Recipe
from sandmeshd.drivers.bubblewrap.spawns.spares import sweep_spares
from sandmeshd.drivers.bubblewrap.start_modes import StartModes
from sandmeshd.drivers.bubblewrap.template_builds import TemplateBuilds
from sandmeshd.drivers.bubblewrap.tracker import Tracker
from sandmeshd.drivers.bubblewrap.zygote_start import shared_variables
from sandmeshd.drivers.node.deletion import discard
from sandmeshd.drivers.node.disk_space import lacks_room
from sandmeshd.drivers.node.driver import TAIL_BYTES, NodeDriver
from sandmeshd.drivers.node.host_directories import opened
from sandmeshd.drivers.node.processes import end, find, to_the_end
from sandmeshd.drivers.node.records import Folder, observe
from sandmeshd.runtime.full_disk import full_disk_explained


class BubblewrapDriver(NodeDriver):
    """One mesh's sandboxes on this machine; opened by `open_driver`."""

    def __init__(
        self, settings: BubblewrapSettings, builds: TemplateBuilds, modes: StartModes, probe: Probe, user_filter: bytes
    ) -> None:
        self._tracker = Tracker()
        super().__init__(settings.paths, self._tracker, settings.snapshot_bytes)
        self._settings = settings
        self._builds = builds
        self._modes = modes
        self._probe = probe
        self._user_filter = user_filter
        self._prewarming: set[asyncio.Task[None]] = set()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do, after trying whether it can."""
        return pb.GetInfoResponse(
            name=NAME,
            node_id=self._settings.node_id,
            runtime_version=f"{await self._probe.version()} ({self._modes.describe()})",
            capabilities=capabilities(self._modes.groups.enforceable),
            templates=self._builds.describe(),
            troubles=lacks_room(self._settings.paths),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build what a template is made of."""
        async with aclosing(self._builds.prepare(self._builds.template(request.template))) as steps:
            async for step in steps:
                yield pb.PrepareTemplateResponse(message=step.message, fraction=step.fraction)
        self._prewarm()
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        await self._probe.version()
        with full_disk_explained(self._settings.paths.sandboxes):
            plan = self._plan(folder, request)
            with opened(request.spec, self._settings.workspace_rules) as workspace:
                mounts = replace(plan.mounts, workspace_fd=workspace.fd if workspace else None)
                await self._remove(folder)
                try:
                    return await self._start(replace(plan, mounts=mounts))
                except BaseException:
                    await to_the_end(self._remove(folder))
                    raise

    def _plan(self, folder: Folder, request: pb.CreateSandboxRequest) -> Plan:
        template = self._builds.template(request.spec.template)
        groups = self._modes.groups.enforceable
        check(request, groups)
        self._snapshots.check(request.spec)
        mounts = self._builds.mounts(template, folder, request.spec.limits)
        record = new_record(request, folder, self._settings, groups)
        config = agent_config(record, template, self._user_filter, self._settings)
        return Plan(folder, record, mounts, config, group_limits(request.spec.limits), shared_variables(template))

    async def _start(self, plan: Plan) -> pb.RuntimeSandbox:
        lifetime = await self._modes.start(plan)
        processes = find(plan.folder)
        if processes is None:
            if lifetime is not None:
                os.close(lifetime)
            detail = plan.folder.end_detail()
            raise SandboxStartFailed(f"{plan.folder.sandbox_id} ended as soon as it listened", {"detail": detail})
        self._tracker.follow(plan.folder, processes, lifetime)
        return await self._finish_start(plan.folder, plan.record)

    async def _observe(self, folder: Folder) -> pb.RuntimeSandbox | None:
        return observe(folder, self._settings.paths.mesh_id)

    async def _end(self, folder: Folder) -> None:
        await end(folder)

    async def _remove(self, folder: Folder) -> None:
        self._warm_links.drop(folder.sandbox_id)
        if not folder.is_there():
            return
        await end(folder)
        await self._tracker.settled(folder)
        await remove_groups(folder)
        await asyncio.to_thread(discard, folder)

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of what agent and bwrap wrote."""
        await self._inspect(request.sandbox_id)
        folder = self._folders.folder(request.sandbox_id)
        data, end = folder.tail(request.tail_bytes or TAIL_BYTES, request.after_offset)
        return pb.GetLogsResponse(data=data, end_offset=end)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        await self._refuse(request.sandbox_id, "pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse: nothing here can freeze processes."""
        await self._refuse(request.sandbox_id, "pause")

    async def _refuse(self, sandbox_id: str, needs: str) -> NoReturn:
        await self._inspect(sandbox_id)
        raise CapabilityMissing(f"the bubblewrap driver has no {needs}: choose another driver", {"needs": needs})

    async def adopt(self) -> None:
        """Follow the sandboxes that run, and finish interrupted removals."""
        await sweep_spares(self._folders)
        await self._finish_removals()
        await self._modes.groups.sweep(self._folders.all())
        for folder in self._folders.all():
            processes = find(folder)
            if processes is not None:
                self._tracker.follow(folder, processes)
        self._prewarm()

    def _prewarm(self) -> None:
        if self._settings.stands_by:
            some = self._folders.folder("any")
            for template in self._builds.standing_by():
                limits = sandbox_pb2.Limits(**template.limits.model_dump())
                mounts = self._builds.mounts(template, some, limits)
                recipe = Recipe(mounts, shared_variables(template), group_limits(limits))
                task = asyncio.create_task(self._modes.prewarm(recipe))
                self._prewarming.add(task)
                task.add_done_callback(self._prewarming.discard)

    async def close(self) -> None:
        """Release the sandboxes; those that end with the driver are deleted."""
        try:
            if self._settings.ends_with_driver:
                await asyncio.gather(*(self._delete(folder) for folder in self._folders.all()))
        finally:
            self._warm_links.close()
            for task in self._prewarming:
                task.cancel()
            if self._prewarming:
                await asyncio.wait(set(self._prewarming))
            await self._modes.close()
            await self._tracker.close()
