"""The start of a sandbox: its session, and the birth of the agent that the vendor starts in it."""

from __future__ import annotations

import asyncio

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.birth import give_birth
from sandmeshd.drivers.clouds.container import AGENT_DIRECTORY
from sandmeshd.drivers.clouds.instances import answers, last_words
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.requirements import nano_price
from sandmeshd.drivers.clouds.sessions import RentedSession
from sandmeshd.drivers.clouds.settings import CloudSettings
from sandmeshd.drivers.clouds.vendor import Vendor
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.templates import Template

ATTEMPT_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class Starter:
    """Starts the sandboxes of one driver."""

    def __init__(self, settings: CloudSettings, vendor: Vendor, keys: MeshKeys, user_filter: bytes) -> None:
        self._settings = settings
        self._vendor = vendor
        self._keys = keys
        self._identity = keys.identity()
        self._user_filter = user_filter

    async def start(self, session: RentedSession, template: Template) -> None:
        """Start a sandbox, and return when its agent answers; on failure the caller removes what was made.

        Raises:
            SandboxStartFailed: Its agent does not answer; the vendor's own words are in `facts["detail"]`.
            SandmeshError: What the vendor refuses the session with.
        """
        session.sandbox.agent_token = self._keys.agent_token(session.session_id)
        session.sandbox.nano_price = nano_price(session.sandbox.spec.limits, self._settings)
        config = shared.agent_config(session.sandbox, AGENT_DIRECTORY, template)
        config.fencing_token, config.seccomp_filter = session.record.fencing_token, self._user_filter
        config.user_id, config.listen = shared.USER_ID, ""
        shared.let_out(session.sandbox, config, template, self._settings.egress)
        session.sandbox.enforced["network"] = f"{session.sandbox.enforced['network']}; {self._vendor.walls}"
        await self._vendor.begin(session)
        born = pb.RuntimeSandbox()
        born.CopyFrom(session.sandbox)
        born.state = pb.RUNTIME_STATE_RUNNING
        config.record = self._keys.seal(SpecRecord(born, session.record.fencing_token), session.session_id)
        failures: list[str] = []
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._bear(session, config, failures)
        except TimeoutError:
            why = f"its agent did not answer within {self._settings.start_timeout:g} s"
            reasons = ((await last_words(session)).text or why, *failures[-1:])
            raise _failed(session, "; ".join(reasons)) from None
        session.sandbox.state = pb.RUNTIME_STATE_RUNNING

    async def _bear(self, session: RentedSession, config: agent_pb2.AgentConfig, failures: list[str]) -> None:
        pause = FIRST_PAUSE
        while True:
            # It may not be there yet; or it was born, and the answer was lost.
            try:
                await give_birth(session.sandbox.endpoint, config, self._identity, ATTEMPT_SECONDS)
            except SandboxLost as error:
                failures.append(error.facts.get("detail", error.message))
            if await answers(session):
                return
            detail = "it was deleted meanwhile" if session.is_unwanted else await self._vendor.why_ended(session)
            if detail:
                raise _failed(session, detail)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _failed(session: RentedSession, detail: str) -> SandboxStartFailed:
    message = f"{session.sandbox.sandbox_id} could not be started: {detail}"
    return SandboxStartFailed(message, {"detail": detail})
