"""The driver of sandboxes that are rented: DriverService's methods over a vendor's sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument, LeaseLost, SandboxLost, SandmeshError
from sandmeshd.agentlink.connection import installing_token
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.api.requirements import check_id
from sandmeshd.drivers.api.templates import template_info, template_of
from sandmeshd.drivers.api.views import ViewedSandboxes
from sandmeshd.drivers.clouds.adoption import Adoption
from sandmeshd.drivers.clouds.instances import read_kept
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.link_watch import LinkWatcher
from sandmeshd.drivers.clouds.requirements import capabilities, check
from sandmeshd.drivers.clouds.sessions import RentedSession, RentedSessions
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.clouds.start import Starter
from sandmeshd.drivers.clouds.vendor import Vendor
from sandmeshd.drivers.node.driver import FixedGrants
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.runtime.keyed_locks import KeyedLocks
from sandmeshd.templates import Template


class CloudDriver(ViewedSandboxes, FixedGrants):
    """One mesh's sandboxes in a region; opened by `open_cloud`."""

    def __init__(
        self,
        settings: CloudSettings,
        vendor: Vendor,
        keys: MeshKeys,
        templates: Mapping[str, Template],
        user_filter: bytes,
    ) -> None:
        self._settings = settings
        self._vendor = vendor
        self._keys = keys
        self._templates = templates
        self._sessions = RentedSessions()
        super().__init__(settings.driver, settings.paths.mesh_id, self._sessions, Watched())
        self._starter = Starter(settings, vendor, keys, user_filter)
        self._watcher = LinkWatcher(vendor, keys, self._changes, settings.lost_seconds)
        self._locks = KeyedLocks()

    async def adopt(self) -> None:
        """Find the sandboxes that earlier drivers of the mesh left."""
        await Adoption(self._vendor, self._keys, self._settings.lost_seconds).fill(self._sessions)
        for sandbox in self._sessions.all():
            session = self._sessions.get(sandbox.sandbox_id)
            if session is not None and not session.has_ended:
                self._watcher.follow(session)

    async def close(self) -> None:
        """Delete the sandboxes that end with the driver; the others go on."""
        try:
            if self._settings.ends_with_driver:
                with suppress(SandmeshError):
                    await asyncio.gather(*(self._delete(sandbox.sandbox_id) for sandbox in self._sessions.all()))
                    await self._vendor.clear()
        finally:
            await self._watcher.close()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        return pb.GetInfoResponse(
            name=self._name,
            node_id=self._settings.node_id,
            runtime_version=self._vendor.where,
            capabilities=capabilities(),
            templates=[template_info(template, prepared=True) for template in self._templates.values()],
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Make what a template's sandboxes share, unless it exists."""
        template = template_of(self._templates, request.template)
        async with aclosing(self._vendor.preparing(template)) as steps:
            async for message in steps:
                yield pb.PrepareTemplateResponse(message=message)
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
        session = self._sessions.get(request.sandbox_id)
        # One whose start a killed driver left unfinished has no spec, and is created again.
        if session is None or not session.sandbox.HasField("spec"):
            return None
        if session.sandbox.spec != request.spec:
            raise AlreadyExists(f"{request.sandbox_id} exists with another spec", {"sandbox_id": request.sandbox_id})
        return self._sessions.find(request.sandbox_id)

    async def _create(self, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = template_of(self._templates, request.spec.template)
        check(request, self._name)
        left = self._sessions.get(request.sandbox_id)
        if left is not None:
            await self._remove(left)
        async with self._vendor.planned(request, template) as session:
            self._sessions.add(session)
            try:
                await self._starter.start(session, template)
            except BaseException:
                session.end("its start failed, and it could not be removed yet")
                # What is left where the vendor does not answer is listed, so that the allocator removes it later.
                with suppress(SandmeshError):
                    await to_the_end(self._remove(session))
                raise
        self._watcher.follow(session)
        self._changes.changed(request.sandbox_id)
        return self._existing(request.sandbox_id)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """End a sandbox's session; nothing of it is billed from then on."""
        check_id(request.sandbox_id)
        await self._delete(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    async def _delete(self, sandbox_id: str) -> None:
        starting = self._sessions.get(sandbox_id)
        if starting is not None:
            # A create in progress fails soon and releases the lock.
            starting.is_unwanted = True
        async with self._locks.held(sandbox_id):
            session = self._sessions.get(sandbox_id)
            if session is not None:
                await to_the_end(self._remove(session))
                self._changes.changed(sandbox_id)

    async def _remove(self, session: RentedSession) -> None:
        await self._watcher.drop(session)
        await self._vendor.end(session)
        self._sessions.remove(session)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and keep the record with the labels."""
        async with self._locks.held(request.sandbox_id):
            sandbox = self._existing(request.sandbox_id)
            session = self._sessions.get(request.sandbox_id)
            if session is None or session.has_ended:
                raise SandboxLost(f"{request.sandbox_id} ended", {"detail": sandbox.end_detail})
            if not session.is_read and not await read_kept(session, self._keys):
                raise SandboxLost(
                    f"{request.sandbox_id} is not this mesh's", {"detail": "its record was not sealed by it"}
                )
            sandbox = self._existing(request.sandbox_id)
            if request.fencing_token < session.record.fencing_token:
                raise LeaseLost(f"the fencing token {request.fencing_token} is older than the one in force")
            sandbox.record_labels.clear()
            sandbox.record_labels.update(request.record_labels)
            renewed = SpecRecord(sandbox, request.fencing_token)
            sealed = self._keys.seal(renewed, session.session_id)
            async with installing_token(session.sandbox, request.fencing_token, record=sealed):
                pass
            session.record = renewed
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return nothing: what agents write goes to the vendor's log service, if at all."""
        self._existing(request.sandbox_id)
        return pb.GetLogsResponse()
