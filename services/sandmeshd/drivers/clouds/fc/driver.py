"""The driver of a cloud's sessions: DriverService's methods over Function Compute."""

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
from sandmeshd.drivers.clouds.fc.adoption import Adoption
from sandmeshd.drivers.clouds.fc.functions import Functions
from sandmeshd.drivers.clouds.fc.link_watch import LinkWatcher
from sandmeshd.drivers.clouds.fc.requirements import NAME, capabilities, check
from sandmeshd.drivers.clouds.fc.service import FunctionCompute
from sandmeshd.drivers.clouds.fc.sessions import Session, Sessions
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.fc.start import Starter
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.node.fixed_grants import FixedGrants
from sandmeshd.drivers.node.keyed_locks import KeyedLocks
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Record
from sandmeshd.templates import Template

log = structlog.get_logger()


class FcDriver(ViewedSandboxes, FixedGrants):
    """One mesh's sandboxes in a region; opened by `open_driver`."""

    def __init__(
        self,
        settings: FcSettings,
        service: FunctionCompute,
        keys: MeshKeys,
        templates: Mapping[str, Template],
        user_filter: bytes,
    ) -> None:
        self._settings = settings
        self._service = service
        self._keys = keys
        self._templates = templates
        self._sessions = Sessions()
        super().__init__(NAME, settings.paths.mesh_id, self._sessions, Watched())
        self._functions = Functions(settings, service, templates, keys.pin)
        self._starter = Starter(settings, service, keys, user_filter)
        self._watcher = LinkWatcher(service, self._changes, settings.lost_seconds)
        self._locks = KeyedLocks()

    async def adopt(self) -> None:
        """Find the sandboxes that earlier drivers of the mesh left."""
        adoption = Adoption(self._mesh_id, self._service, self._keys, self._settings.lost_seconds)
        await adoption.fill(self._functions, self._sessions)
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
                    for name in await self._functions.names():
                        await self._functions.remove_unused(name, whatever=True)
        finally:
            await self._watcher.close()

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do."""
        return pb.GetInfoResponse(
            name=NAME,
            node_id=self._settings.node_id,
            runtime_version=f"Function Compute 3.0, region {self._settings.region_id}",
            capabilities=capabilities(),
            templates=[template_info(template, prepared=True) for template in self._templates.values()],
        )

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Make the function of a template's sandboxes, unless it exists."""
        template = template_of(self._templates, request.template)
        plan = self._functions.plan(template, pb.CreateSandboxRequest().spec.limits)
        yield pb.PrepareTemplateResponse(message=f"function {plan.name}")
        await self._functions.url(plan)
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
        check(request)
        plan = self._functions.plan(template, request.spec.limits)
        left = self._sessions.get(request.sandbox_id)
        if left is not None:
            await self._remove(left)
        with self._functions.used(plan.name):
            session = self._starter.session(request, plan, await self._functions.url(plan))
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

    async def _remove(self, session: Session) -> None:
        await self._watcher.drop(session)
        await self._service.delete_session(session.function, session.session_id)
        self._sessions.remove(session)
        try:
            await self._functions.remove_unused(session.function)
        except SandmeshError as error:
            # It costs nothing; the next one to look for it removes it.
            log.warning("a function could not be removed", function=session.function, reason=error.message)

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Make the agent refuse every lower fencing token, and keep the record with the labels."""
        async with self._locks.held(request.sandbox_id):
            sandbox = self._existing(request.sandbox_id)
            session = self._sessions.get(request.sandbox_id)
            if session is None or session.has_ended:
                raise SandboxLost(f"{request.sandbox_id} ended", {"detail": sandbox.end_detail})
            if request.fencing_token < session.record.fencing_token:
                raise LeaseLost(f"the fencing token {request.fencing_token} is older than the one in force")
            sandbox.record_labels.clear()
            sandbox.record_labels.update(request.record_labels)
            renewed = Record(sandbox, request.fencing_token)
            sealed = self._keys.seal(renewed, session.session_id)
            async with installing_token(session.sandbox, request.fencing_token, record=sealed):
                pass
            session.record = renewed
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return nothing: what agents write goes to the vendor's log service, if at all."""
        self._existing(request.sandbox_id)
        return pb.GetLogsResponse()
