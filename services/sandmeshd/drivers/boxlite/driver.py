"""The driver of a machine's boxes: DriverService's methods over BoxLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument, LeaseLost, SandboxLost, SandmeshError
from sandmeshd.agentlink.connection import installing_token
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.api.requirements import check_id
from sandmeshd.drivers.api.templates import template_info, template_of
from sandmeshd.drivers.api.views import ViewedSandboxes
from sandmeshd.drivers.boxlite.boxes import Boxes, box_name, mesh_prefix
from sandmeshd.drivers.boxlite.requirements import NAME, capabilities, check
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.boxlite.start import Starter
from sandmeshd.drivers.boxlite.view import BoxView
from sandmeshd.drivers.node.driver import FixedGrants
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import MeshFolders, SpecRecord, read_record
from sandmeshd.runtime.keyed_locks import KeyedLocks
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import Template

POLL_SECONDS = 1.0

log = structlog.get_logger()


class BoxliteDriver(ViewedSandboxes, FixedGrants):
    """One mesh's sandboxes in a home of BoxLite; opened by `open_driver`."""

    def __init__(
        self, settings: BoxliteSettings, boxes: Boxes, templates: Mapping[str, Template], user_filter: bytes
    ) -> None:
        self._settings = settings
        self._boxes = boxes
        self._templates = templates
        self._seen = BoxView(settings.paths.mesh_id, MeshFolders(settings.paths))
        super().__init__(NAME, settings.paths.mesh_id, self._seen, Watched())
        self._starter = Starter(settings, boxes, self._seen, templates, user_filter)
        self._locks = KeyedLocks()

    async def adopt(self) -> None:
        """Find the boxes that earlier drivers of the mesh left, and remove those that no sandbox has."""
        swept = await self._boxes.sweep()
        found = {box.name: box for box in await self._boxes.list(mesh_prefix(self._mesh_id))}
        self._seen.renew(found)
        known = {box_name(self._mesh_id, sandbox.sandbox_id) for sandbox in self._seen.all()}
        for name in found.keys() - known:
            await self._boxes.remove(name)
        if swept:
            log.info("what an earlier driver left was ended", processes=swept)

    async def follow(self) -> None:
        """Notice boxes that end; BoxLite tells of none by itself."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                found = {box.name: box for box in await self._boxes.list(mesh_prefix(self._mesh_id))}
            except SandmeshError as error:
                log.warning("the boxes could not be listed", reason=error.message)
                continue
            for sandbox_id in self._seen.renew(found):
                self._changes.changed(sandbox_id)

    async def close(self) -> None:
        """Delete the sandboxes that end with the driver; the others go on."""
        if self._settings.ends_with_driver:
            with suppress(SandmeshError):
                await asyncio.gather(*(self._delete(sandbox.sandbox_id) for sandbox in self._seen.all()))

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        return pb.GetInfoResponse(
            name=NAME,
            node_id=self._settings.node_id,
            runtime_version="BoxLite",
            capabilities=capabilities(),
            templates=[template_info(template, prepared=True) for template in self._templates.values()],
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Make the OCI layout of a template's image, unless it exists."""
        await self._starter.layout(template_of(self._templates, request.template))
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent answers."""
        check_id(request.sandbox_id)
        if request.mesh_id != self._mesh_id:
            message = f"this driver serves the mesh {self._mesh_id!r}, not {request.mesh_id!r}"
            raise InvalidArgument(message, {"field": "mesh_id"})
        async with self._locks.held(request.sandbox_id):
            sandbox = self._repeated(request) or await self._create(request)
            return pb.CreateSandboxResponse(sandbox=sandbox)

    def _repeated(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox | None:
        record = read_record(self._seen.folder(request.sandbox_id))
        # A sandbox whose start a killed driver left unfinished is created again.
        if record is None or record.sandbox.state == pb.RUNTIME_STATE_STARTING:
            return None
        if record.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        return self._seen.find(request.sandbox_id)

    async def _create(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = template_of(self._templates, request.spec.template)
        check(request)
        if self._seen.find(request.sandbox_id) is not None:
            await self._remove(request.sandbox_id)
        try:
            sandbox = await self._starter.start(request, template)
        except BaseException:
            with suppress(SandmeshError):
                await to_the_end(self._remove(request.sandbox_id))
            raise
        self._changes.changed(request.sandbox_id)
        return sandbox

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Delete a sandbox's box and folder; return when both are gone."""
        check_id(request.sandbox_id)
        await self._delete(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    async def _delete(self, sandbox_id: str) -> None:
        # Without its box a create in progress fails soon and releases the lock.
        await self._boxes.remove(box_name(self._mesh_id, sandbox_id))
        async with self._locks.held(sandbox_id):
            if self._seen.find(sandbox_id) is not None:
                await to_the_end(self._remove(sandbox_id))
                self._changes.changed(sandbox_id)

    async def _remove(self, sandbox_id: str) -> None:
        await self._boxes.remove(box_name(self._mesh_id, sandbox_id))
        await asyncio.to_thread(remove_tree, self._seen.folder(sandbox_id).root)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and store the labels."""
        async with self._locks.held(request.sandbox_id):
            sandbox = self._existing(request.sandbox_id)
            folder = self._seen.folder(request.sandbox_id)
            record = read_record(folder)
            if record is None or sandbox.state == pb.RUNTIME_STATE_ENDED:
                raise SandboxLost(f"{request.sandbox_id} ended", {"detail": sandbox.end_detail})
            if request.fencing_token < record.fencing_token:
                raise LeaseLost(f"the fencing token {request.fencing_token} is older than the one in force")
            async with installing_token(record.sandbox, request.fencing_token):
                # Written while the agent reads: where it refuses or is gone, the sandbox is given up.
                record.sandbox.record_labels.clear()
                record.sandbox.record_labels.update(request.record_labels)
                SpecRecord(record.sandbox, request.fencing_token).write(folder)
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return nothing: what agents write stays in their boxes."""
        self._existing(request.sandbox_id)
        return pb.GetLogsResponse()
