"""The bubblewrap driver: DriverService's methods over folders, locks and bwrap."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.pauses import check_mode
from sandmeshd.drivers.bubblewrap.arguments import SOCKETS
from sandmeshd.drivers.bubblewrap.identity import release
from sandmeshd.drivers.bubblewrap.images.plan import CHANGES
from sandmeshd.drivers.bubblewrap.images.sandboxes import ImageSandboxes
from sandmeshd.drivers.bubblewrap.pause import is_paused, pause, pause_and_give_back, resume
from sandmeshd.drivers.bubblewrap.probe import Probe
from sandmeshd.drivers.bubblewrap.requirements import (
    NAME,
    capabilities,
    check,
    enforced,
    group_limits,
    hard_limit,
    starts_alone,
)
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import Recipe
from sandmeshd.drivers.bubblewrap.spawns.spares import sweep_spares
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan
from sandmeshd.drivers.bubblewrap.starts.start_modes import StartModes
from sandmeshd.drivers.bubblewrap.starts.zygote_start import shared_variables
from sandmeshd.drivers.bubblewrap.starts.zygotes import UNCLAIMED
from sandmeshd.drivers.bubblewrap.template_builds import TemplateBuilds
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.driver import check_alive, lacks_room
from sandmeshd.drivers.node.images.process import check_name, configure, image_of
from sandmeshd.drivers.node.mounts.host_directories import opened
from sandmeshd.drivers.node.mounts.volumes import opened_volumes
from sandmeshd.drivers.node.process_driver import ProcessDriver
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.drivers.snapshots.snapshots import IMAGE
from sandmeshd.images.image import ImageConfig
from sandmeshd.images.reference import parse_reference
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.templates import Template
from sandmeshd.tenants.shares import tenant_of

Made = TypeVar("Made")


class BubblewrapDriver(ProcessDriver):
    """One mesh's sandboxes on this machine; opened by `open_driver`."""

    name = NAME

    def __init__(
        self,
        settings: BubblewrapSettings,
        builds: TemplateBuilds,
        modes: StartModes[Plan],
        probe: Probe,
        user_filter: bytes,
        images: ImageSandboxes,
    ) -> None:
        super().__init__(settings)
        self._images = images
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
            capabilities=capabilities(
                self._modes.groups.enforceable,
                volumes=self._settings.volumes_root is not None,
                images=self._images.able,
                root=self._images.root_able,
            ),
            templates=self._builds.describe(),
            troubles=lacks_room(self._settings.paths),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build what a template is made of."""
        template = self._builds.template(request.template)
        if not template.image_is_shipped:
            await self._images.check_here(template.image, template)
        async with aclosing(self._builds.prepare(template, ahead=request.ahead)) as steps:
            async for step in steps:
                yield pb.PrepareTemplateResponse(message=step.message, fraction=step.fraction)
        self._prewarm()
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        await self._probe.version()
        template = self._builds.template(request.spec.template)
        with full_disk_explained(self._settings.paths.sandboxes):
            check_name(request.spec, self._builds.names)
            if image_of(request.spec, template) or self._snapshots.image_of(request.spec)[0]:
                return await self._create_from_image(folder, request, template)
            self._images.check_root(request.spec)
            self._snapshots.check(request.spec)
            plan = self._plan(folder, request, template)
            with (
                opened(request.spec, self._settings.workspace_rules) as workspace,
                opened_volumes(request.spec, self._settings.volumes_root, self._settings.volumes_uid) as volumes,
            ):
                mounts = replace(
                    plan.mounts,
                    workspace_fd=workspace.fd if workspace else None,
                    volumes=tuple((volume.directory.fd, volume.place) for volume in volumes),
                )
                await self._remove(folder)
                try:
                    return await self._start(replace(plan, mounts=mounts))
                except BaseException:
                    await to_the_end(self._remove(folder))
                    raise

    async def _create_from_image(
        self, folder: Folder, request: pb.CreateSandboxRequest, template: Template
    ) -> pb.RuntimeSandbox:
        reference, digest = self._snapshots.image_of(request.spec)
        if own := image_of(request.spec, template):
            digest = digest if str(parse_reference(own)) == reference else ""
            reference = own
        async with self._images.held(request.spec, reference, template, digest) as (image, root):
            facts = self._images.describe(image, root)
            self._snapshots.check(request.spec, facts[IMAGE])
            plan = self._plan(folder, request, template, image.config)
            await self._remove(folder)
            try:
                plan.record.sandbox.enforced.update(facts)
                lifetime = await self._images.start(plan, root)
                return await self._follow(folder, plan.record, lifetime)
            except BaseException:
                await to_the_end(self._remove(folder))
                raise

    def _plan(
        self,
        folder: Folder,
        request: pb.CreateSandboxRequest,
        template: Template,
        image: ImageConfig | None = None,
    ) -> Plan:
        groups = self._modes.groups.enforceable
        check(request, groups)
        mounts = self._builds.mounts(template, folder, request.spec.limits)
        record = new_record(request, folder, self._settings, groups)
        user_filter = self._user_filter if image is None else self._images.user_filter
        config = agent_config(record, template, user_filter, self._settings, image)
        limits, variables = group_limits(request.spec.limits), shared_variables(template)
        owner = tenant_of(request.record_labels)
        return Plan(folder, record, mounts, config, limits, variables, owner, starts_alone(template))

    async def _start(self, plan: Plan) -> pb.RuntimeSandbox:
        lifetime = await self._modes.start(plan)
        return await self._follow(plan.folder, plan.record, lifetime)

    async def _release(self, folder: Folder) -> None:
        await release(folder)
        self._images.release(folder)

    async def _observe(self, folder: Folder) -> pb.RuntimeSandbox | None:
        sandbox = await super()._observe(folder)
        if sandbox is not None and sandbox.state == pb.RUNTIME_STATE_RUNNING and is_paused(folder):
            sandbox.state = pb.RUNTIME_STATE_PAUSED
        return sandbox

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process, or end those of user code and freeze the rest.

        Raises:
            CapabilityMissing: Its memory is to be written to disk.
        """
        check_mode(request.mode, capabilities({}))
        ends = request.mode == sandbox_pb2.PAUSE_MODE_FILES
        memory = await self._change(request.sandbox_id, partial(pause_and_give_back, ends=ends))
        return pb.PauseSandboxResponse(memory=memory)

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Resume a paused sandbox."""
        await self._change(request.sandbox_id, resume)
        return pb.ResumeSandboxResponse()

    async def _change(self, sandbox_id: str, change: Callable[[Folder], Coroutine[Any, Any, Made]]) -> Made:
        async with self._locks.held(sandbox_id):
            check_alive(await self._inspect(sandbox_id))
            made = await to_the_end(change(self._folders.folder(sandbox_id)))
            self._changes.changed(sandbox_id)
            return made

    async def adopt(self) -> None:
        """Follow the sandboxes that run, and finish interrupted removals and pauses."""
        await sweep_spares(self._folders)
        await self._modes.groups.sweep(self._folders.all())
        await super().adopt()
        await asyncio.gather(*(pause(folder) for folder in self._folders.all() if is_paused(folder)))
        self._prewarm()

    def _prewarm(self) -> None:
        if self._settings.stands_by:
            some = self._folders.folder("any")
            for template in self._builds.standing_by():
                limits = sandbox_pb2.Limits(**template.limits.model_dump())
                mounts = self._builds.mounts(template, some, limits)
                recipe = Recipe(mounts, shared_variables(template), group_limits(limits), UNCLAIMED)
                task = asyncio.create_task(self._modes.prewarm(recipe))
                self._prewarming.add(task)
                task.add_done_callback(self._prewarming.discard)

    async def close(self) -> None:
        """Release the sandboxes; those that end with the driver are deleted."""
        try:
            await super().close()
        finally:
            for task in self._prewarming:
                task.cancel()
            if self._prewarming:
                await asyncio.wait(set(self._prewarming))
            await self._images.close()
            await self._modes.close()


def new_record(
    request: pb.CreateSandboxRequest, folder: Folder, settings: BubblewrapSettings, groups: Mapping[str, str]
) -> SpecRecord:
    """Return the record of a sandbox to be started."""
    limits = enforced(request.spec.limits, groups, settings.host_uid)
    return SpecRecord(shared.new_sandbox(request, folder.endpoint, limits), request.fencing_token)


def agent_config(
    record: SpecRecord,
    template: Template,
    user_filter: bytes,
    settings: BubblewrapSettings,
    image: ImageConfig | None = None,
) -> agent_pb2.AgentConfig:
    """Return the configuration of a sandbox's agent; what enforces its network grant is added to the record.

    `image` is what the image that is its root says, if it has one.
    """
    sandbox = record.sandbox
    config = shared.agent_config(sandbox, SOCKETS, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver
    config.max_processes = sandbox.spec.limits.pids or _at_most_hard(resource.RLIMIT_NPROC, shared.PROCESSES)
    config.hidden_directory = SOCKETS
    if image is not None:
        configure(config, image, template, sandbox.spec)
        config.image_changes = CHANGES
    shared.let_out(sandbox, config, template, settings.egress)
    return config


def _at_most_hard(rlimit: int, default: int) -> int:
    # A limit cannot be raised above the inherited hard limit.
    hard = hard_limit(rlimit)
    return default if hard is None else min(default, hard)
