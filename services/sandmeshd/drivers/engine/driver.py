"""The driver of an engine's containers, docker's and gVisor's alike: DriverService's methods over the engine's API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.api.pauses import check_mode
from sandmeshd.drivers.engine.connection import stopped_after
from sandmeshd.drivers.engine.container_config import SANDBOX, container_name, node_labels
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.events import EventSubscriber
from sandmeshd.drivers.engine.garbage import GarbageCollector
from sandmeshd.drivers.engine.images.images import Images
from sandmeshd.drivers.engine.orphans import remove_with_orphans
from sandmeshd.drivers.engine.plan import Plan, Planner
from sandmeshd.drivers.engine.reach.network_start import NetworkStarter
from sandmeshd.drivers.engine.requirements import capabilities, check
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.engine.start import Starter
from sandmeshd.drivers.engine.unmodified.sandboxes import UnmodifiedSandboxes
from sandmeshd.drivers.node.agent_config import WORKSPACE
from sandmeshd.drivers.node.driver import TAIL_BYTES, NodeDriver, check_alive, lacks_room
from sandmeshd.drivers.node.images.process import check_name
from sandmeshd.drivers.node.mounts.host_directories import WorkspaceDir, opened
from sandmeshd.drivers.node.mounts.volumes import opened_volumes
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Folder, SpecRecord, discard, read_record
from sandmeshd.runtime.full_disk import full_disk_explained

State = tuple[pb.RuntimeState.ValueType, str]
"""A state, and for ENDED the detail of the end."""

KILLED = 128 + 9

_ALIVE = {"running": pb.RUNTIME_STATE_RUNNING, "paused": pb.RUNTIME_STATE_PAUSED}


def state_of(state: Mapping[str, Any]) -> State:
    """Return the state of a container that the engine describes."""
    status = str(state.get("Status"))
    if status in _ALIVE:
        return _ALIVE[status], ""
    if status == "created":
        return pb.RUNTIME_STATE_STARTING, ""
    return pb.RUNTIME_STATE_ENDED, _end_detail(state)


def killed_within(state: Mapping[str, Any], seconds: float) -> bool:
    """Return whether a container was killed that recently, as far as known not for its memory."""
    if state.get("Status") != "exited" or state.get("ExitCode") != KILLED or state.get("OOMKilled"):
        return False
    age = datetime.now(UTC) - datetime.fromisoformat(str(state["FinishedAt"]))
    return abs(age.total_seconds()) < seconds


def _end_detail(state: Mapping[str, Any]) -> str:
    code = int(state.get("ExitCode") or 0)
    how = f"signal {code - 128}" if code > 128 else f"exit code {code}"
    return f"{how}, out of memory" if state.get("OOMKilled") else how


def observe(folder: Folder, mesh_id: str, state: State | None) -> pb.RuntimeSandbox | None:
    """Return a sandbox as it is now, None if nothing of it is left; `state` is its container's, if there is one."""
    record = read_record(folder)
    if record is None:
        if state is None and not folder.root.is_dir():
            return None
        # Its creator was killed before it wrote the record, or the folder is lost: it cannot be used.
        record = SpecRecord(pb.RuntimeSandbox(sandbox_id=folder.sandbox_id, mesh_id=mesh_id), 0)
        state = pb.RUNTIME_STATE_ENDED, "nothing is known of it"
    sandbox = record.sandbox
    if state is None:
        sandbox.state, sandbox.end_detail = pb.RUNTIME_STATE_ENDED, "its container is gone"
    elif sandbox.state != pb.RUNTIME_STATE_STARTING or state[0] == pb.RUNTIME_STATE_ENDED:
        sandbox.state, sandbox.end_detail = state
    return sandbox


SETTLED_SECONDS = 0.5


class EngineDriver(NodeDriver):
    """One mesh's sandboxes on an engine; opened by `open_driver`."""

    saves_roots = False

    def __init__(
        self,
        settings: DockerSettings,
        engine: Engine,
        images: Images,
        unmodified: UnmodifiedSandboxes,
        user_filter: bytes,
    ) -> None:
        self._events = EventSubscriber(engine, node_labels(settings))
        super().__init__(settings.paths, self._events, settings.snapshot_bytes)
        self._settings = settings
        self._profile = settings.profile
        self._engine = engine
        self._images = images
        self._planner = Planner(settings, images, user_filter)
        self._unmodified = unmodified
        self._starter = (NetworkStarter if settings.link.remote else Starter)(settings, engine, self._events)
        self._lifetimes: dict[str, int] = {}
        self._enforceable: Mapping[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        info, link = await self._engine.info(), self._settings.link
        self._enforceable = self._profile.enforceable(info)
        return pb.GetInfoResponse(
            name=self._profile.name,
            node_id=self._settings.node_id,
            runtime_version=f"Docker {info.get('ServerVersion')} ({info.get('Driver')}), agents {link}",
            capabilities=capabilities(
                self._profile,
                self._enforceable,
                link,
                volumes=self._settings.volumes_root is not None,
                images=self._unmodified.able,
                root=self._unmodified.root_able,
            ),
            templates=await self._images.describe(),
            port_range=pb.PortRange(first=link.first, last=link.last) if link.first else None,
            troubles=lacks_room(self._settings.paths),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or pull a template's image."""
        async with aclosing(self._images.prepare(self._images.template(request.template))) as steps:
            async for step in steps:
                yield pb.PrepareTemplateResponse(message=step.message, fraction=step.fraction)
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        with full_disk_explained(self._settings.paths.state_root):
            template = self._images.template(request.spec.template)
            enforceable = self._enforceable or self._profile.enforceable(await self._engine.info())
            check(self._profile, request, enforceable, self._settings.link)
            self._unmodified.check(request.spec)
            if request.spec.image:
                check_name(request.spec, self._images.names)
                plan = await self._unmodified.plan(folder, request, template, enforceable)
                return await self._start(plan, {})
            self._snapshots.check(request.spec)
            await self._planner.check_prepared(template)
            with (
                opened(request.spec, self._settings.workspace_rules) as workspace,
                opened_volumes(request.spec, self._settings.volumes_root, self._settings.volumes_uid) as volumes,
            ):
                shared = {volume.place: volume.directory for volume in volumes}
                if workspace is not None:
                    shared[WORKSPACE] = workspace
                plan = self._planner.plan(
                    folder, request, enforceable, {place: one.path for place, one in shared.items()}
                )
                return await self._start(plan, shared)

    async def _start(self, plan: Plan, shared: Mapping[str, WorkspaceDir]) -> pb.RuntimeSandbox:
        sandbox_id = plan.folder.sandbox_id
        with self._events.end_of(sandbox_id) as ended:
            await self._remove(plan.folder)
            try:
                lifetime = await self._starter.start(plan, ended)
                if lifetime is not None:
                    self._lifetimes[sandbox_id] = lifetime
                if shared:
                    await self._check_mounted(plan, shared)
                return await self._finish_start(plan.folder, plan.record)
            except BaseException:
                await to_the_end(self._undo(plan))
                raise

    async def _check_mounted(self, plan: Plan, shared: Mapping[str, WorkspaceDir]) -> None:
        """Check that the engine, which takes paths, mounted the directories that were checked."""
        root = ""
        # Only root can look inside, and not into its own kernel.
        if os.geteuid() == 0 and self._profile is DOCKER:
            container = await self._engine.inspect(plan.name)
            root = f"/proc/{container['State']['Pid']}/root" if container else ""
        for place, directory in shared.items():
            directory.check_same(f"{root}{place}" if root else directory.path)

    async def _undo(self, plan: Plan) -> None:
        container = await self._engine.inspect(plan.name)
        if container is not None:
            # The caller may be at its next attempt when the event of this one's end arrives.
            self._events.ignore(str(container["Id"]))
        await self._remove(plan.folder)

    async def _end(self, folder: Folder) -> None:
        name, record = self._name(folder), read_record(folder)
        unfinished = record is None or record.sandbox.state == pb.RUNTIME_STATE_STARTING
        if unfinished and self._profile.helpers:
            await to_the_end(remove_with_orphans(self._engine, name, self._profile.helpers))
        else:
            await self._engine.remove(name, frozen=bool(self._profile.runtime))

    async def _remove(self, folder: Folder) -> None:
        self._warm_links.drop(folder.sandbox_id)
        await self._end(folder)
        if self._settings.link.mode == "network":
            await self._engine.remove_network(self._name(folder))
        lifetime = self._lifetimes.pop(folder.sandbox_id, None)
        if lifetime is not None:
            os.close(lifetime)
        if folder.is_there():
            await asyncio.to_thread(discard, folder)

    def _name(self, folder: Folder) -> str:
        return container_name(self._settings.paths.mesh_id, folder.sandbox_id)

    async def _observe(self, folder: Folder) -> pb.RuntimeSandbox | None:
        found = await self._settled(self._name(folder))
        state = None if found is None else await self._state(found)
        if state is None and self._events.is_starting(folder.sandbox_id):
            state = pb.RUNTIME_STATE_STARTING, ""
        return observe(folder, self._settings.paths.mesh_id, state)

    async def _settled(self, name: str) -> Mapping[str, Any] | None:
        """Return a container's state, None if it does not exist; of one that was killed just now, a moment later.

        An engine may hear of the end before it hears that memory ran out.
        """
        while True:
            container = await self._engine.inspect(name)
            found: Mapping[str, Any] | None = None if container is None else container["State"]
            if found is None or not killed_within(found, SETTLED_SECONDS):
                return found
            await asyncio.sleep(SETTLED_SECONDS / 5)

    async def _state(self, found: Mapping[str, Any]) -> State:
        state, detail = state_of(found)
        ended = state == pb.RUNTIME_STATE_ENDED and not found.get("OOMKilled")
        if ended and await stopped_after(self._engine, str(found["FinishedAt"])):
            return state, f"the engine stopped ({detail})"
        return state, detail

    async def _sandbox_ids(self) -> set[str]:
        containers = await self._engine.list(*node_labels(self._settings))
        return {container["Labels"][SANDBOX] for container in containers} | await super()._sandbox_ids()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of what the agent wrote, as the engine kept it."""
        folder = self._folders.folder(request.sandbox_id)
        await self._inspect(request.sandbox_id)
        log = await self._engine.log(self._name(folder))
        after = request.after_offset if request.after_offset <= len(log) else 0
        begin = max(after, len(log) - (request.tail_bytes or TAIL_BYTES))
        return pb.GetLogsResponse(data=log[begin:], end_offset=len(log))

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process.

        Raises:
            CapabilityMissing: Anything else than memory is to be kept.
        """
        check_mode(request.mode, pb.Capabilities(pause=True))
        await self._apply(request.sandbox_id, self._engine.pause)
        return pb.PauseSandboxResponse()

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Resume a frozen sandbox."""
        await self._apply(request.sandbox_id, self._engine.resume)
        return pb.ResumeSandboxResponse()

    async def _apply(self, sandbox_id: str, action: Callable[[str], Awaitable[None]]) -> None:
        async with self._locks.held(sandbox_id):
            check_alive(await self._inspect(sandbox_id))
            await action(self._name(self._folders.folder(sandbox_id)))

    async def adopt(self) -> None:
        """Subscribe to the engine's events, and finish interrupted removals."""
        await self._finish_removals()
        networks = self._settings.link.mode == "network"
        collector = GarbageCollector(self._engine, node_labels(self._settings), self._events, networks=networks)
        self._tasks = [
            asyncio.create_task(self._events.follow(self._folders)),
            asyncio.create_task(collector.collect()),
        ]

    async def close(self) -> None:
        """Release the sandboxes; those that end with the driver are deleted."""
        try:
            if self._settings.ends_with_driver:
                await asyncio.gather(*(self._delete(folder) for folder in self._folders.all()))
        finally:
            await self._unmodified.close()
            self._warm_links.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
