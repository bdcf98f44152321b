"""The docker driver: DriverService's methods over an engine's containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import (
    AlreadyExists,
    InvalidArgument,
    SandboxLost,
    SandboxNotFound,
    WrongState,
)
from sandmeshd.agentlink.warm_links import Waiting
from sandmeshd.drivers.api.templates import check_settings
from sandmeshd.drivers.engine.agent_config import agent_config, new_record
from sandmeshd.drivers.engine.container_state import seen, state_of
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.events import Follower
from sandmeshd.drivers.engine.failed_starts import remove_whole
from sandmeshd.drivers.engine.images.images import Images
from sandmeshd.drivers.engine.network import over_network, tell_listening
from sandmeshd.drivers.engine.network_start import NetworkStarter
from sandmeshd.drivers.engine.posture import SANDBOX, container_config, container_name, of_node
from sandmeshd.drivers.engine.requirements import capabilities, check
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.engine.start import Plan, Starter
from sandmeshd.drivers.node.agent_config import WORKSPACE
from sandmeshd.drivers.node.deletion import discard, finish_removals
from sandmeshd.drivers.node.disk_space import lacks_room
from sandmeshd.drivers.node.host_directories import WorkspaceDir, opened
from sandmeshd.drivers.node.keyed_locks import KeyedLocks
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Folder, Folders, hand_over, read_record
from sandmeshd.drivers.snapshots import Snapshots
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.templates import Template

TAIL_BYTES = 64 * 1024


class DockerDriver:
    """One mesh's sandboxes on an engine; opened by `open_driver`."""

    def __init__(self, settings: DockerSettings, engine: Engine, images: Images, user_filter: bytes) -> None:
        self._settings = settings
        self._kind = settings.kind
        self._engine = engine
        self._images = images
        self._user_filter = user_filter
        self._folders = Folders(settings.paths)
        networks = settings.link.way == "network"
        self._follower = Follower(engine, of_node(settings), self._folders, networks=networks)
        self._link = settings.link
        starter = NetworkStarter if self._link.remote else Starter
        self._starter = starter(settings, engine, self._follower)
        self._snapshots = Snapshots(settings.paths, settings.snapshot_bytes)
        self._locks = KeyedLocks()
        self._waiting = Waiting()
        self._held: dict[str, int] = {}
        self._able: Mapping[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Say what the driver is and can do."""
        info = await self._engine.info()
        self._able = self._kind.enforceable(info)
        return pb.GetInfoResponse(
            name=self._kind.name,
            node_id=self._settings.node_id,
            runtime_version=f"Docker {info.get('ServerVersion')} ({info.get('Driver')}), agents {self._link}",
            capabilities=capabilities(self._kind, self._able, self._link),
            templates=await self._images.describe(),
            port_range=pb.PortRange(first=self._link.first, last=self._link.last) if self._link.first else None,
            troubles=lacks_room(self._settings.paths),
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Build or pull a template's image."""
        async with aclosing(self._images.prepare(self._images.template(request.template))) as steps:
            async for step in steps:
                yield pb.PrepareTemplateResponse(message=step.message, fraction=step.fraction)
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Make a sandbox; return when its agent listens."""
        folder = self._folders.folder(request.sandbox_id)
        if request.mesh_id != self._settings.paths.mesh_id:
            message = f"this driver serves the mesh {self._settings.paths.mesh_id!r}, not {request.mesh_id!r}"
            raise InvalidArgument(message, {"field": "mesh_id"})
        async with self._locks.held(request.sandbox_id):
            present = await self._present(folder, request)
            if present is None:
                with full_disk_explained(self._settings.paths.state_root):
                    present = await self._create(folder, request)
            return pb.CreateSandboxResponse(sandbox=present)

    async def _present(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox | None:
        record = read_record(folder)
        if record is None:
            return None
        if record.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        # What a killed driver half made is made again.
        half_made = record.sandbox.state == pb.RUNTIME_STATE_STARTING
        return None if half_made else await self._look(folder)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = self._images.template(request.spec.template)
        able = self._able or self._kind.enforceable(await self._engine.info())
        check(self._kind, request, able, self._link)
        self._snapshots.check(request.spec)
        await self._check_prepared(template)
        record = new_record(self._kind, request, folder, able)
        config = agent_config(record, template, self._user_filter, self._settings)
        trusts, image = bool(config.egress_port), self._images.name_of(template)
        with opened(request.spec, self._settings.workspace_rules) as workspace:
            path = workspace.path if workspace else ""
            container = container_config(self._settings, folder, request.spec, image, trusts, path)
            plan = Plan(folder, record, config, container, self._name(folder), sum(request.ports))
            return await self._made(self._over_network(plan) if self._link.remote else plan, workspace)

    def _over_network(self, plan: Plan) -> Plan:
        tell_listening(plan.config, plan.record.sandbox)
        return replace(plan, container=over_network(plan.container, self._link, plan.name, plan.port))

    async def _made(self, plan: Plan, workspace: WorkspaceDir | None) -> pb.RuntimeSandbox:
        with self._follower.end_of(plan.folder.sandbox_id) as ended:
            await self._remove(plan.folder)
            try:
                return await self._start(plan, workspace, ended)
            except BaseException:
                await to_the_end(self._undo(plan.folder))
                raise

    async def _check_prepared(self, template: Template) -> None:
        check_settings(template, self._kind.name)
        if not await self._images.is_prepared(template):
            fix = f"prepare it first ({self._images.how_to_prepare(template)})"
            message = f"template {template.name} is not prepared: {fix}"
            raise WrongState(message, {"state": "not prepared", "template": template.name, "fix": fix})

    async def _start(self, plan: Plan, workspace: WorkspaceDir | None, ended: asyncio.Event) -> pb.RuntimeSandbox:
        held = await self._starter.start(plan, ended)
        if held is not None:
            self._held[plan.folder.sandbox_id] = held
        if workspace is not None:
            await self._check_bound(plan, workspace)
        await self._snapshots.restore(plan.record.sandbox, plan.record.fencing_token)
        plan.record.sandbox.state = pb.RUNTIME_STATE_RUNNING
        plan.record.write(plan.folder)
        self._follower.changed(plan.folder.sandbox_id)
        if not plan.record.fencing_token:
            self._waiting.keep(plan.record.sandbox)
        return plan.record.sandbox

    async def _undo(self, folder: Folder) -> None:
        begun = await self._engine.look(self._name(folder))
        if begun is not None:
            # Its end is no news: whoever asked for it may be at the next attempt by then.
            self._follower.ignore(str(begun["Id"]))
        await self._remove(folder)

    async def _check_bound(self, plan: Plan, workspace: WorkspaceDir) -> None:
        """Check that the engine, which takes a path, took the directory that was checked."""
        place = workspace.path
        # Only root can look inside, and not into a kernel of its own.
        if os.geteuid() == 0 and self._kind is DOCKER:
            container = await self._engine.look(plan.name)
            place = f"/proc/{container['State']['Pid']}/root{WORKSPACE}" if container else place
        workspace.check_same(place)

    async def _end(self, folder: Folder) -> None:
        name, record = self._name(folder), read_record(folder)
        half_made = record is None or record.sandbox.state == pb.RUNTIME_STATE_STARTING
        if half_made and self._kind.helpers:
            await to_the_end(remove_whole(self._engine, name, self._kind.helpers))
        else:
            await self._engine.remove(name, frozen=bool(self._kind.runtime))

    async def _remove(self, folder: Folder) -> None:
        self._waiting.drop(folder.sandbox_id)
        await self._end(folder)
        if self._link.way == "network":
            await self._engine.remove_network(self._name(folder))
        held = self._held.pop(folder.sandbox_id, None)
        if held is not None:
            os.close(held)
        if folder.is_there():
            await asyncio.to_thread(discard, folder)

    def _name(self, folder: Folder) -> str:
        return container_name(self._settings.paths.mesh_id, folder.sandbox_id)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Say what the engine knows."""
        return pb.InspectSandboxResponse(sandbox=await self._found(request.sandbox_id))

    async def _found(self, sandbox_id: str) -> pb.RuntimeSandbox:
        found = await self._look(self._folders.folder(sandbox_id))
        if found is None:
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return found

    async def _look(self, folder: Folder) -> pb.RuntimeSandbox | None:
        container = await self._engine.look(self._name(folder))
        state = None if container is None else state_of(container["State"])
        if state is None and self._follower.is_starting(folder.sandbox_id):
            state = pb.RUNTIME_STATE_STARTING, ""
        return seen(folder, self._settings.paths.mesh_id, state)

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every container and folder of the mesh."""
        return pb.ListSandboxesResponse(sandboxes=await self._list(request.mesh_id))

    async def _list(self, mesh_id: str) -> list[pb.RuntimeSandbox]:
        if mesh_id != self._settings.paths.mesh_id:
            return []
        listed = await self._engine.list(*of_node(self._settings))
        ids = {container["Labels"][SANDBOX] for container in listed}
        ids |= {folder.sandbox_id for folder in self._folders.all()}
        found = [await self._look(self._folders.folder(name)) for name in sorted(ids)]
        return [sandbox for sandbox in found if sandbox is not None]

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox's container with its volume, and its folders."""
        await self._delete(self._folders.folder(request.sandbox_id))
        return pb.DeleteSandboxResponse()

    async def _delete(self, folder: Folder) -> None:
        # Without its container a create that is under way fails at once and lets go of the id.
        await self._end(folder)
        async with self._locks.held(folder.sandbox_id):
            if folder.is_there():
                await to_the_end(self._remove(folder))
                self._follower.changed(folder.sandbox_id)

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        mesh_id = self._settings.paths.mesh_id
        with self._follower.watching() as changes:
            for sandbox in await self._list(request.mesh_id):
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            async with aclosing(changes.follow()) as ids:
                async for sandbox_id in ids:
                    gone = pb.RuntimeSandbox(sandbox_id=sandbox_id, mesh_id=mesh_id, state=pb.RUNTIME_STATE_ENDED)
                    if request.mesh_id == mesh_id:
                        found = await self._look(self._folders.folder(sandbox_id))
                        yield pb.WatchSandboxesResponse(sandbox=found or gone)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            try:
                await hand_over(folder, request, self._waiting)
            except SandboxLost:
                # The engine is asked only where the agent does not answer.
                _check_alive(await self._found(request.sandbox_id))
                raise
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Give the end of what the agent wrote, as the engine kept it."""
        folder = self._folders.folder(request.sandbox_id)
        await self._found(request.sandbox_id)
        whole = await self._engine.log(self._name(folder))
        after = request.after_offset if request.after_offset <= len(whole) else 0
        begin = max(after, len(whole) - (request.tail_bytes or TAIL_BYTES))
        return pb.GetLogsResponse(data=whole[begin:], end_offset=len(whole))

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Freeze every process."""
        await self._switch(request.sandbox_id, self._engine.pause)
        return pb.PauseSandboxResponse()

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Let a frozen sandbox run."""
        await self._switch(request.sandbox_id, self._engine.resume)
        return pb.ResumeSandboxResponse()

    async def _switch(self, sandbox_id: str, how: Any) -> None:
        async with self._locks.held(sandbox_id):
            _check_alive(await self._found(sandbox_id))
            await how(self._name(self._folders.folder(sandbox_id)))

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Save workspace and home, which user code leaves as they are meanwhile; the root is never written to."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            sandbox, record = await self._found(request.sandbox_id), read_record(folder)
            return await self._snapshots.take(request, sandbox, record.fencing_token if record else 0)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List the node's snapshots."""
        return self._snapshots.list(request.mesh_id)

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Remove a snapshot's files."""
        return await self._snapshots.delete(request.snapshot_id)

    async def adopt(self) -> None:
        """Follow the engine's events, and finish removals that were begun."""
        await asyncio.to_thread(finish_removals, self._folders)
        await asyncio.to_thread(self._snapshots.sweep)
        self._tasks = [asyncio.create_task(self._follower.follow()), asyncio.create_task(self._follower.tidy())]

    async def close(self) -> None:
        """Let go of the sandboxes; those that end with the driver are deleted."""
        try:
            if self._settings.ends_with_driver:
                await asyncio.gather(*(self._delete(folder) for folder in self._folders.all()))
        finally:
            self._waiting.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _check_alive(sandbox: pb.RuntimeSandbox) -> None:
    if sandbox.state == pb.RUNTIME_STATE_ENDED:
        raise SandboxLost(f"{sandbox.sandbox_id} ended", {"detail": sandbox.end_detail})
