"""The start of a sandbox: its session, and the birth of the agent that the vendor starts in it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.addresses import websocket_endpoint
from sandmeshd.agentlink.birth import give_birth
from sandmeshd.drivers.clouds.fc.functions import AGENT_DIRECTORY, Plan
from sandmeshd.drivers.clouds.fc.instances import answers, end_of, last_words
from sandmeshd.drivers.clouds.fc.names import AFFINITY, new_session_id
from sandmeshd.drivers.clouds.fc.requirements import WALLS, enforced, size_of
from sandmeshd.drivers.clouds.fc.service import FunctionCompute
from sandmeshd.drivers.clouds.fc.sessions import Session
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Record
from sandmeshd.templates import Template

ATTEMPT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class Starter:
    """Starts the sandboxes of one driver."""

    def __init__(self, settings: FcSettings, service: FunctionCompute, keys: MeshKeys, user_filter: bytes) -> None:
        self._settings = settings
        self._service = service
        self._keys = keys
        self._identity = keys.identity()
        self._user_filter = user_filter

    def session(self, request: pb.CreateSandboxRequest, plan: Plan, url: str) -> Session:
        """Return the session of a sandbox that is to be started."""
        session_id = new_session_id(request.sandbox_id)
        limits = request.spec.limits
        walls = enforced(limits, size_of(limits, self._settings))
        sandbox = shared.new_sandbox(request, websocket_endpoint(url, AFFINITY, session_id), walls)
        sandbox.agent_token = self._keys.agent_token(session_id)
        return Session(plan.name, session_id, Record(sandbox, request.fencing_token))

    async def start(self, session: Session, template: Template) -> None:
        """Start a sandbox, and return when its agent answers; on failure the caller removes what was made.

        Raises:
            SandboxStartFailed: Its agent does not answer; the vendor's own words are in `facts["detail"]`.
            SandmeshError: What the vendor refuses the session with.
        """
        config = shared.agent_config(session.sandbox, AGENT_DIRECTORY, template)
        config.fencing_token, config.seccomp_filter = session.record.fencing_token, self._user_filter
        config.user_id, config.listen = shared.USER_ID, ""
        shared.let_out(session.sandbox, config, template, self._settings.egress)
        session.sandbox.enforced["network"] = f"{session.sandbox.enforced['network']}; {WALLS}"
        body = {
            "sessionId": session.session_id,
            "sessionTTLInSeconds": self._settings.session_seconds,
            "sessionIdleTimeoutInSeconds": self._settings.idle_seconds,
            "disableSessionIdReuse": True,
            "allowInternetAccess": False,
        }
        # One that is abandoned could take effect after the session was deleted.
        await to_the_end(self._service.create_session(session.function, body))
        born = pb.RuntimeSandbox()
        born.CopyFrom(session.sandbox)
        born.state = pb.RUNTIME_STATE_RUNNING
        config.record = self._keys.seal(Record(born, session.record.fencing_token), session.session_id)
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._bear(session, config)
        except TimeoutError:
            why = f"its agent did not answer within {self._settings.start_timeout:g} s"
            raise _failed(session, await last_words(session) or why) from None
        session.sandbox.state = pb.RUNTIME_STATE_RUNNING

    async def _bear(self, session: Session, config: agent_pb2.AgentConfig) -> None:
        pause = FIRST_PAUSE
        while True:
            # It may not be there yet; or it was born, and the answer was lost.
            with suppress(SandboxLost):
                await give_birth(session.sandbox.endpoint, config, self._identity, ATTEMPT_SECONDS)
            if await answers(session):
                return
            detail = "it was deleted meanwhile" if session.is_unwanted else await end_of(self._service, session)
            if detail:
                raise _failed(session, detail)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _failed(session: Session, detail: str) -> SandboxStartFailed:
    message = f"{session.sandbox.sandbox_id} could not be started: {detail}"
    return SandboxStartFailed(message, {"detail": detail})
