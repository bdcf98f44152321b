"""A driver of about 100 lines: a bwrap a sandbox, a folder as its record, and nothing that it cannot enforce."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import NoReturn

from pydantic import Field

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import AlreadyExists, CapabilityMissing, SandboxNotFound, WrongState
from sandmeshd.agentlink.warm_links import Waiting
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.requirements import check, limit_values
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.api.templates import template_info, template_of
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import new_sandbox
from sandmeshd.drivers.node.deletion import discard, finish_removals
from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.keyed_locks import KeyedLocks
from sandmeshd.drivers.node.processes import Sandboxed, end, find, to_the_end
from sandmeshd.drivers.node.records import Folder, Folders, Record, hand_over, observe, read_record
from sandmeshd.templates import Template, load_templates

from .environment import Environments
from .start import Start

NAME, TAIL_BYTES = "tiny", 64 * 1024


class TinySettings(DriverSettings, env_prefix="SANDMESH_TINY_"):
    """Settings of the tiny driver; each of its own fields is a variable, as SANDMESH_TINY_START_SECONDS."""

    start_seconds: float = Field(default=20.0, gt=0)
    """How long a sandbox's agent may take until it listens."""

    uid: int = Field(default=65432, ge=1)
    """The uid of sandboxes' processes where the mesh runs as root."""

    @property
    def host_uid(self) -> int:
        """The uid of sandboxes' processes, never root's."""
        return self.uid if os.geteuid() == 0 else os.geteuid()


class TinyDriver(Watched):
    """One mesh's sandboxes on this machine."""

    def __init__(self, settings: TinySettings, templates: Mapping[str, Template], agent: AgentTree) -> None:
        super().__init__()
        self._settings = settings
        self._interpreter = choose_interpreter(settings.host_uid, None)
        self._environments = Environments(settings.paths.cache / NAME, self._interpreter)
        self._templates = templates
        self._agent = agent
        self._mesh_id = settings.paths.mesh_id
        self._folders = Folders(settings.paths)
        self._locks = KeyedLocks()
        self._following: set[asyncio.Task[None]] = set()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do: no limits, no network, no snapshots."""
        able = pb.Capabilities(network_modes=[sandbox_pb2.NETWORK_MODE_NONE], isolation="namespaces")
        templates = [template_info(template, self._is_prepared(template)) for template in self._templates.values()]
        return pb.GetInfoResponse(name=NAME, node_id=self._settings.node_id, capabilities=able, templates=templates)

    def _is_prepared(self, template: Template) -> bool:
        return self._agent.prepared and self._environments.is_built(template)

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Copy the agent's code, and install the template's packages."""
        template = template_of(self._templates, request.template)
        await self._agent.build()
        await self._environments.build(template)
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens."""
        folder = self._folders.folder(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            record = read_record(folder)
            if record is None or record.sandbox.state == pb.RUNTIME_STATE_STARTING:
                return pb.CreateSandboxResponse(sandbox=await self._create(folder, request))
            if record.sandbox.spec != request.spec:
                raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": folder.sandbox_id})
            return pb.CreateSandboxResponse(sandbox=observe(folder, self._mesh_id))

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = template_of(self._templates, request.spec.template)
        check(request, NAME, {}, {}, _unmet(request))
        if not self._is_prepared(template):
            raise WrongState(f"{template.name} is not prepared", {"state": "not prepared", "template": template.name})
        enforced = {**dict.fromkeys(limit_values(request.spec.limits), "no"), "network": "none: own namespace"}
        sandbox = new_sandbox(request, folder.endpoint, enforced)
        record = Record(sandbox, request.fencing_token)
        await self._remove(folder)
        try:
            environment, own = self._environments.path(template), self._settings
            start = Start(template, self._agent, environment, self._interpreter, own.host_uid, own.start_seconds)
            await start.run(folder, record)
        except BaseException:
            await to_the_end(self._remove(folder))
            raise
        sandbox.state = pb.RUNTIME_STATE_RUNNING
        record.write(folder)
        self._follow(folder)
        return sandbox

    def _follow(self, folder: Folder) -> None:
        processes = find(folder)
        self.changed(folder.sandbox_id)
        if processes is not None:
            task = asyncio.create_task(self._until_ended(folder, processes))
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _until_ended(self, folder: Folder, processes: Sandboxed) -> None:
        try:
            await processes.ended()
        finally:
            processes.close()
            self.changed(folder.sandbox_id)

    async def _remove(self, folder: Folder) -> None:
        if folder.is_there():
            await end(folder)
            await asyncio.to_thread(discard, folder)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return a sandbox as its folder and its lock show it."""
        return pb.InspectSandboxResponse(sandbox=self._found(request.sandbox_id))

    def _found(self, sandbox_id: str) -> pb.RuntimeSandbox:
        found = observe(self._folders.folder(sandbox_id), self._mesh_id)
        if found is None:
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return found

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every folder of the mesh."""
        folders = self._folders.all() if request.mesh_id == self._mesh_id else []
        seen = [observe(folder, self._mesh_id) for folder in folders]
        return pb.ListSandboxesResponse(sandboxes=[sandbox for sandbox in seen if sandbox is not None])

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """End a sandbox's processes and remove its folder."""
        folder = self._folders.folder(request.sandbox_id)
        await end(folder)
        async with self._locks.held(request.sandbox_id):
            await to_the_end(self._remove(folder))
        self.changed(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send every sandbox, then `synced`, then each change."""
        with self.watching() as changes:
            for sandbox in (await self.list_sandboxes(pb.ListSandboxesRequest(mesh_id=request.mesh_id))).sandboxes:
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            async with aclosing(changes.follow()) as ids:
                async for name in ids:
                    gone = pb.RuntimeSandbox(sandbox_id=name, mesh_id=self._mesh_id, state=pb.RUNTIME_STATE_ENDED)
                    yield pb.WatchSandboxesResponse(sandbox=observe(self._folders.folder(name), self._mesh_id) or gone)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        self._found(request.sandbox_id)
        async with self._locks.held(request.sandbox_id):
            await hand_over(self._folders.folder(request.sandbox_id), request, Waiting())
        return pb.InstallTokenResponse()

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Refuse: its sandboxes have no network."""
        raise CapabilityMissing("sandboxes of tiny have no network", {"needs": "network"})

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return the end of the output of agent and bwrap."""
        self._found(request.sandbox_id)
        folder = self._folders.folder(request.sandbox_id)
        data, offset = folder.tail(request.tail_bytes or TAIL_BYTES, request.after_offset)
        return pb.GetLogsResponse(data=data, end_offset=offset)

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse: nothing here freezes processes."""
        self._refuse(request.sandbox_id, "pause")

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse: nothing here freezes processes."""
        self._refuse(request.sandbox_id, "pause")

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Refuse: there are no snapshots."""
        self._refuse(request.sandbox_id, "snapshot")

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """Refuse: there are no snapshots."""
        self._refuse("", "snapshot")

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Refuse: there are no snapshots."""
        self._refuse("", "snapshot")

    def _refuse(self, sandbox_id: str, needs: str) -> NoReturn:
        if sandbox_id:
            self._found(sandbox_id)
        raise CapabilityMissing(f"the {NAME} driver has no {needs}: choose another driver", {"needs": needs})

    async def open(self) -> None:
        """Finish removals that were begun, and follow the sandboxes that run."""
        await asyncio.to_thread(finish_removals, self._folders)
        for folder in self._folders.all():
            self._follow(folder)

    async def close(self) -> None:
        """Delete the sandboxes that end with the driver."""
        if self._settings.ends_with_driver:
            await asyncio.gather(*(self._remove(folder) for folder in self._folders.all()))
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)


def _unmet(request: pb.CreateSandboxRequest) -> list[str]:
    spec = request.spec
    needs = {
        "network": spec.network.mode not in (0, sandbox_pb2.NETWORK_MODE_NONE),
        "ports": bool(request.ports),
        "snapshot": bool(spec.snapshot_id),
        "workspace_dir": bool(spec.workspace_dir),
    }
    return [name for name, missing in needs.items() if missing]


@asynccontextmanager
async def open_driver(
    settings: TinySettings, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that its folders hold are adopted."""
    agent = await asyncio.to_thread(AgentTree, settings.paths.cache)
    driver = TinyDriver(settings, load_templates() if templates is None else templates, agent)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


DRIVER = (TinySettings, open_driver)
