"""Starts a sandbox whose agent is reached over a network, and waits until that answers there."""

from __future__ import annotations

import asyncio
from typing import Any

from sandmesh.errors import SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.engine.identity import Identity, new_identity
from sandmeshd.drivers.engine.links import AGENT_PORT
from sandmeshd.drivers.engine.network import TLS, files_for, network_config
from sandmeshd.drivers.engine.start import Plan, Starter, files_of

POLL_SECONDS = 0.02
TRY_SECONDS = 5.0
CLASHES = ("port is already allocated", "address already in use")
"""What engines say of a published port that somebody else has: another container, or a program of their machine."""


class NetworkStarter(Starter):
    """Starts sandboxes at an engine that sees no files of this machine."""

    async def start(self, plan: Plan, ended: asyncio.Event) -> int | None:
        """Start a sandbox and return when its agent answers where its record says from then on.

        Raises:
            SandboxStartFailed: As `Starter.start`; `facts["taken_port"]`: the leased port, somebody else's.
            InvalidArgument, WrongState: As `Starter.start`.
            RuntimeUnavailable: The engine has no network left, or not the address to publish on.
        """
        identity = new_identity()
        plan.folder.root.mkdir(mode=0o700)
        plan.record.write(plan.folder)
        await self._begin(plan, identity)
        plan.record.sandbox.endpoint = await self._endpoint(plan, identity)
        await self._answers(plan, ended)
        return None

    async def _begin(self, plan: Plan, identity: Identity) -> None:
        files = {**files_of(plan.config), TLS: identity.pem}
        sent = files_for(files, trusts=bool(plan.config.egress_port))
        if self._settings.link.way == "network":
            await self._engine.make_network(network_config(plan.container, plan.name))
        try:
            await self._run(plan, sent)
        except SandboxStartFailed as error:
            if not any(clash in error.message for clash in CLASHES):
                raise
            facts = {"detail": error.message, "taken_port": str(plan.port)}
            raise SandboxStartFailed(f"port {plan.port} of the engine's machine is somebody else's", facts) from None

    async def _endpoint(self, plan: Plan, identity: Identity) -> str:
        if self._settings.link.way == "port":
            return tls_endpoint(self._settings.link.address, plan.port, identity.pin)
        container: Any = await self._engine.look(plan.name)
        own: Any = container["NetworkSettings"]["Networks"].get(plan.name) if container else None
        address = str(own["IPAddress"]) if own else ""
        if not address:
            raise await self._failed(plan, "it has no address: it ended at once")
        return tls_endpoint(address, AGENT_PORT, identity.pin)

    async def _answers(self, plan: Plan, ended: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while (why := await _why_not(plan)) is not None:
                    if ended.is_set() and not await self._runs(plan, ended):
                        raise await self._failed(plan, "its agent ended at once")
                    await asyncio.sleep(POLL_SECONDS * self._follower.starting)
        except TimeoutError:
            where = plan.record.sandbox.endpoint.partition("?")[0]
            why = f"its agent did not answer at {where} within {self._settings.start_timeout:g} s"
            raise await self._failed(plan, why) from None


async def _why_not(plan: Plan) -> str | None:
    """Say why an agent does not answer yet, None where it does."""
    try:
        async with open_link(plan.record.sandbox, TRY_SECONDS):
            return None
    except SandboxLost as error:
        return error.message
