"""The start of a sandbox whose agent is reached over a network."""

from __future__ import annotations

import asyncio
from typing import Any

from sandmesh.errors import SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.engine.plan import Plan
from sandmeshd.drivers.engine.reach.links import AGENT_PORT
from sandmeshd.drivers.engine.reach.network import files_for, network_config
from sandmeshd.drivers.engine.start import Starter
from sandmeshd.drivers.node.agent_files import TLS, agent_files
from sandmeshd.drivers.node.identity import TlsIdentity, new_identity

POLL_SECONDS = 0.02
ATTEMPT_SECONDS = 5.0
PORT_CONFLICTS = ("port is already allocated", "address already in use")
"""Parts of engines' messages about a published port that another container or program of their machine has."""


class NetworkStarter(Starter):
    """Starts sandboxes on an engine that sees no files of this machine."""

    async def start(self, plan: Plan, ended: asyncio.Event) -> int | None:
        """Start a sandbox, set the endpoint in its record, and return when its agent answers there.

        Raises:
            SandboxStartFailed: As `Starter.start`; `facts["taken_port"]` is the leased port, if it was in use.
            InvalidArgument, WrongState: As `Starter.start`.
            RuntimeUnavailable: The engine has no network left, or lacks the address to publish on.
        """
        identity = new_identity()
        plan.folder.root.mkdir(mode=0o700)
        plan.record.write(plan.folder)
        await self._start_container(plan, identity)
        plan.record.sandbox.endpoint = await self._endpoint(plan, identity)
        await self._wait_for_agent(plan, ended)
        return None

    async def _start_container(self, plan: Plan, identity: TlsIdentity) -> None:
        files = {**agent_files(plan.config), TLS: identity.pem}
        archives = files_for(files, trusts=bool(plan.config.egress_port))
        if self._settings.link.mode == "network":
            await self._engine.make_network(network_config(plan.container, plan.name))
        try:
            await self._run(plan, archives)
        except SandboxStartFailed as error:
            if not any(conflict in error.message for conflict in PORT_CONFLICTS):
                raise
            facts = {"detail": error.message, "taken_port": str(plan.port)}
            raise SandboxStartFailed(
                f"port {plan.port} of the engine's machine is in use by another program", facts
            ) from None

    async def _endpoint(self, plan: Plan, identity: TlsIdentity) -> str:
        if self._settings.link.mode == "port":
            return tls_endpoint(self._settings.link.address, plan.port, identity.pin)
        container: Any = await self._engine.inspect(plan.name)
        network: Any = container["NetworkSettings"]["Networks"].get(plan.name) if container else None
        address = str(network["IPAddress"]) if network else ""
        if not address:
            raise await self._failed(plan, "it has no address: it ended immediately")
        return tls_endpoint(address, AGENT_PORT, identity.pin)

    async def _wait_for_agent(self, plan: Plan, ended: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while not await _answers(plan):
                    if ended.is_set() and not await self._runs(plan, ended):
                        raise await self._failed(plan, "its agent ended immediately")
                    await asyncio.sleep(POLL_SECONDS * self._events.starting)
        except TimeoutError:
            where = plan.record.sandbox.endpoint.partition("?")[0]
            why = f"its agent did not answer at {where} within {self._settings.start_timeout:g} s"
            raise await self._failed(plan, why) from None


async def _answers(plan: Plan) -> bool:
    """Return whether the agent answers."""
    try:
        async with open_link(plan.record.sandbox, ATTEMPT_SECONDS):
            return True
    except SandboxLost:
        return False
