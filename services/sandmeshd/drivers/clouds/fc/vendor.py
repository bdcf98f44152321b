"""Function Compute as the driver's vendor: a sandbox is a session of a function, which sandboxes of its kind share."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.agentlink.addresses import websocket_endpoint
from sandmeshd.drivers.clouds.fc.functions import AFFINITY, Functions
from sandmeshd.drivers.clouds.fc.service import PRODUCT, FunctionComputeApi
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.instances import seconds_of
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.names import new_session_id, sandbox_id_of
from sandmeshd.drivers.clouds.refusals import Refusal
from sandmeshd.drivers.clouds.requirements import enforced
from sandmeshd.drivers.clouds.sessions import RentedSession
from sandmeshd.drivers.clouds.vendor import Vendor
from sandmeshd.drivers.node.agent_config import new_sandbox
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.templates import Template

ENDED = "Expired"

log = structlog.get_logger()


class FunctionCompute(Vendor):
    """The sessions of one mesh in one region."""

    product = PRODUCT
    walls = "no internet access, by the vendor"

    def __init__(self, settings: FcSettings, keys: MeshKeys, templates: Mapping[str, Template]) -> None:
        self.where = f"Function Compute 3.0, region {settings.region_id}"
        self._settings = settings
        self._api = FunctionComputeApi(settings)
        self._functions = Functions(settings, self._api, templates, keys.pin)

    async def check(self) -> None:
        """Check that the API answers, and takes the keys."""
        await self._api.check()

    async def preparing(self, template: Template) -> AsyncGenerator[str]:
        """Make the function of a template's sandboxes."""
        plan = self._functions.plan(template, pb.CreateSandboxRequest().spec.limits)
        yield f"function {plan.name}"
        await self._functions.url(plan)

    @asynccontextmanager
    async def planned(self, request: pb.CreateSandboxRequest, template: Template) -> AsyncGenerator[RentedSession]:
        """Plan a session of the function of a template's sandboxes of some size."""
        limits = request.spec.limits
        plan = self._functions.plan(template, limits)
        with self._functions.used(plan.name):
            url, session_id = await self._functions.url(plan), new_session_id(request.sandbox_id)
            endpoint = websocket_endpoint(url, AFFINITY, session_id)
            sandbox = new_sandbox(request, endpoint, enforced(limits, self._settings))
            yield RentedSession(plan.name, session_id, SpecRecord(sandbox, request.fencing_token))

    async def begin(self, session: RentedSession) -> None:
        """Create a session."""
        body = {
            "sessionId": session.session_id,
            "sessionTTLInSeconds": self._settings.session_seconds,
            "sessionIdleTimeoutInSeconds": self._settings.idle_seconds,
            "disableSessionIdReuse": True,
            "allowInternetAccess": False,
        }
        # One that is abandoned could take effect after the session was deleted.
        await to_the_end(self._api.create_session(session.resource, body))

    async def end(self, session: RentedSession) -> None:
        """Delete a session, and its function if that was the last one of an older generation."""
        await self._api.delete_session(session.resource, session.session_id)
        try:
            await self._functions.remove_unused(session.resource)
        except SandmeshError as error:
            # It costs nothing; the next one to look for it removes it.
            log.warning("a function could not be removed", function=session.resource, reason=error.message)

    async def why_ended(self, session: RentedSession) -> str:
        """Return how a session ended, empty while it lives."""
        found = await self._api.list_sessions(session.resource, session.session_id)
        if any(one.get("sessionStatus") != ENDED for one in found):
            return ""
        return _why_ended(found[0], session.begun) if found else "its session was deleted by somebody else"

    async def left(self) -> AsyncGenerator[RentedSession]:
        """Yield the sessions of all functions of the mesh, and remove functions of older generations without any."""
        for name in await self._functions.names():
            try:
                url = await self._functions.existing_url(name)
            except Refusal:
                url = ""
            for listed in await self._api.list_sessions(name):
                yield self._found(name, url, listed)
            await self._functions.remove_unused(name)

    def _found(self, function: str, url: str, listed: Mapping[str, Any]) -> RentedSession:
        session_id = str(listed["sessionId"])
        sandbox = pb.RuntimeSandbox(
            sandbox_id=sandbox_id_of(session_id),
            mesh_id=self._settings.paths.mesh_id,
            endpoint=websocket_endpoint(url, AFFINITY, session_id) if url else "",
        )
        session = RentedSession(function, session_id, SpecRecord(sandbox, 0), seconds_of(listed.get("createdTime")))
        if listed.get("sessionStatus") == ENDED:
            session.end("Function Compute ended its session while no driver was there")
        return session

    async def clear(self) -> None:
        """Remove the functions of the mesh."""
        for name in await self._functions.names():
            await self._functions.remove_unused(name, whatever=True)


def _why_ended(found: Mapping[str, Any], begun: float) -> str:
    seconds, idle = int(found.get("sessionTTLInSeconds") or 0), int(found.get("sessionIdleTimeoutInSeconds") or 0)
    begun = seconds_of(found.get("createdTime")) or begun
    if seconds and time.time() >= begun + seconds:
        return f"its session's {seconds} s are over, after which Function Compute ended it"
    return f"Function Compute ended its session, which may be without links for {idle} s, or ended it by itself"
