"""AgentRun as the driver's vendor: a sandbox is a runtime with a dedicated endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxStartFailed
from sandmeshd.agentlink.addresses import websocket_endpoint
from sandmeshd.drivers.api.templates import check_no_data, check_no_scratch, check_no_system, check_settings, image_of
from sandmeshd.drivers.clouds import container
from sandmeshd.drivers.clouds.agentrun.service import PRODUCT, AgentRunApi
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.instances import seconds_of
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.names import hashed, mesh_prefix, new_session_id
from sandmeshd.drivers.clouds.requests import Resource
from sandmeshd.drivers.clouds.requirements import enforced, size_of
from sandmeshd.drivers.clouds.sessions import RentedSession
from sandmeshd.drivers.clouds.vendor import Vendor
from sandmeshd.drivers.node.agent_config import new_sandbox
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.templates import Template

AFFINITY = "x-agentrun-session-id"
"""The header by which the vendor's gateway finds a session."""

POLL_SECONDS = 0.5
READY = ("READY", "ACTIVE")
FAILED = ("CREATE_FAILED", "UPDATE_FAILED", "FAILED", "DELETING")
NO_REASON = "AgentRun gives no reason"
_DESCRIPTION = "sandmesh: "


class AgentRun(Vendor):
    """The runtimes of one mesh in one region.

    A runtime's name ends with its session's id; its description has the sandbox's.
    """

    product = PRODUCT
    walls = "no network but the vendor's private one, by the vendor"

    def __init__(self, settings: AgentRunSettings, keys: MeshKeys, templates: Mapping[str, Template]) -> None:
        self.where = f"AgentRun 2025-09-10, region {settings.region_id}"
        self._settings = settings
        self._templates = templates
        self._pin = keys.pin
        self._api = AgentRunApi(settings)
        self._prefix = mesh_prefix(settings.prefix, settings.paths.mesh_id)
        self._bodies: dict[str, dict[str, Any]] = {}

    async def check(self) -> None:
        """Check that the API answers, and takes the keys."""
        await self._api.check()

    async def preparing(self, template: Template) -> AsyncGenerator[str]:
        """Check that a template's sandboxes can be made: they share nothing."""
        self._check(template)
        yield f"image {image_of(template, self._templates, self._settings)}"

    def _check(self, template: Template) -> None:
        check_no_system(template, self._settings.driver)
        check_no_data(template, self._settings.driver)
        check_no_scratch(template, self._settings.driver)
        check_settings(template, self._settings.driver)

    @asynccontextmanager
    async def planned(self, request: pb.CreateSandboxRequest, template: Template) -> AsyncGenerator[RentedSession]:
        """Plan a runtime for a sandbox."""
        self._check(template)
        session_id = new_session_id(hashed(request.sandbox_id, 16))
        sandbox = new_sandbox(request, "", enforced(request.spec.limits, self._settings))
        self._bodies[session_id] = self._body(request, template, session_id)
        try:
            yield RentedSession("", session_id, SpecRecord(sandbox, request.fencing_token))
        finally:
            self._bodies.pop(session_id, None)

    def _body(self, request: pb.CreateSandboxRequest, template: Template, session_id: str) -> dict[str, Any]:
        settings, size = self._settings, size_of(request.spec.limits, self._settings)
        body: dict[str, Any] = {
            "agentRuntimeName": f"{self._prefix}{session_id}",
            "description": f"{_DESCRIPTION}{request.sandbox_id}",
            "artifactType": "Container",
            "cpu": size.cpu,
            "memory": size.mebibytes,
            "diskSize": container.DISK_MEBIBYTES,
            "port": container.PORT,
            "containerConfiguration": {
                "image": image_of(template, self._templates, settings),
                "port": container.PORT,
                "command": container.command(self._pin),
            },
            "healthCheckConfiguration": dict(container.HEALTH),
            # User code's way out is the agent's link.
            "networkConfiguration": {"networkMode": "PRIVATE"},
            "sessionAffinityType": "HEADER_FIELD",
            "headerFieldName": AFFINITY,
            "enableSessionIsolation": True,
            "sessionConcurrencyLimitPerInstance": 1,
            "sessionIdleTimeoutSeconds": settings.idle_seconds,
        }
        if settings.role:
            body["executionRoleArn"] = settings.role
        if settings.log_project:
            body["logConfiguration"] = {"project": settings.log_project, "logstore": settings.log_store}
        return body

    async def begin(self, session: RentedSession) -> None:
        """Create a runtime and its endpoint, and wait until both are ready."""
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._begin(session)
        except TimeoutError:
            detail = f"AgentRun's runtime was not ready within {self._settings.start_timeout:g} s"
            raise SandboxStartFailed(f"a sandbox could not be started: {detail}", {"detail": detail}) from None

    async def _begin(self, session: RentedSession) -> None:
        # One that is abandoned could take effect after it was looked for to be deleted.
        session.resource = await to_the_end(self._api.create_runtime(self._bodies[session.session_id]))
        await self._ready(session, "runtime", lambda: self._api.runtime(session.resource))
        endpoint = await to_the_end(self._api.create_endpoint(session.resource))
        ready = await self._ready(session, "endpoint", lambda: self._api.endpoint(session.resource, endpoint))
        session.sandbox.endpoint = self._address(ready, session.session_id)

    async def _ready(
        self, session: RentedSession, what: str, get: Callable[[], Awaitable[Resource | None]]
    ) -> Resource:
        while True:
            found = await get() or {"status": "deleted"}
            if found["status"] in READY:
                return found
            detail = "it was deleted meanwhile" if session.is_unwanted else ""
            if found["status"] in (*FAILED, "deleted"):
                detail = f"AgentRun's {what} is {found['status']}: {found.get('statusReason') or NO_REASON}"
            if detail:
                raise SandboxStartFailed(f"a sandbox could not be started: {detail}", {"detail": detail})
            await asyncio.sleep(POLL_SECONDS)

    def _address(self, endpoint: Mapping[str, Any], session_id: str) -> str:
        return websocket_endpoint(str(endpoint["endpointPublicUrl"]), AFFINITY, session_id)

    async def end(self, session: RentedSession) -> None:
        """Delete a sandbox's runtime, and whatever else a lost answer left under its name."""
        found = await self._api.runtimes(f"{self._prefix}{session.session_id}")
        for runtime in {session.resource, *(str(one["agentRuntimeId"]) for one in found)} - {""}:
            await self._api.delete_runtime(runtime)

    async def why_ended(self, session: RentedSession) -> str:
        """Return how a sandbox ended by what its runtime is, empty while that is there."""
        found = await self._api.runtime(session.resource)
        if found is None:
            return "its runtime was deleted by somebody else"
        if found.get("status") in FAILED:
            return f"its runtime is {found['status']}: {found.get('statusReason') or NO_REASON}"
        return ""

    async def left(self) -> AsyncGenerator[RentedSession]:
        """Yield the runtimes of the mesh."""
        for listed in await self._api.runtimes(prefix=self._prefix):
            runtime = str(listed["agentRuntimeId"])
            found = await self._api.endpoints(runtime)
            yield self._found(listed, found[0] if found else {})

    def _found(self, listed: Mapping[str, Any], endpoint: Mapping[str, Any]) -> RentedSession:
        session_id = str(listed["agentRuntimeName"]).removeprefix(self._prefix)
        sandbox = pb.RuntimeSandbox(
            sandbox_id=str(listed.get("description") or "").removeprefix(_DESCRIPTION),
            mesh_id=self._settings.paths.mesh_id,
            endpoint=self._address(endpoint, session_id) if endpoint.get("endpointPublicUrl") else "",
        )
        begun = seconds_of(listed.get("createdAt"))
        session = RentedSession(str(listed["agentRuntimeId"]), session_id, SpecRecord(sandbox, 0), begun)
        if listed.get("status") in FAILED:
            session.end(f"its runtime is {listed['status']}")
        return session

    async def clear(self) -> None:
        """Remove nothing: sandboxes share nothing."""
