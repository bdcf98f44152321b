"""Record, state, lease, health, pause and resume of a sandbox: a part of every async box."""

from __future__ import annotations

import asyncio
from typing import Any

from sandmesh._client.messages import read_event, read_record, read_state, write_pause_mode
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandboxNotFound, SandmeshError
from sandmesh.inputs import PauseMode
from sandmesh.sandbox.handle import SandboxHandle, get_record, renew

HEALTH_SECONDS = 5.0


class LifecycleAsync(SandboxHandle):
    """The methods of a box that are about its sandbox's lifecycle."""

    async def get_info(self) -> dict[str, Any]:
        """Return the sandbox's record as plain JSON: state, spec, lease, driver, enforced limits.

        Raises:
            SandboxNotFound: It no longer exists.
        """
        attachment = self._attached()
        record = await get_record(attachment.usable(), attachment.record.sandbox_id, self._config.timeout)
        return read_record(record)

    async def renew(self, ttl: float | None = None) -> None:
        """Renew the sandbox's lease for `ttl` seconds from now; None is the mesh's default.

        A box that created its sandbox renews it by itself while it is open, with this ttl from now on.

        Raises:
            LeaseLost: The lease has expired, or the sandbox was released.
        """
        attachment = self._attached()
        await renew(attachment, ttl, self._config.timeout)

    async def list_events(self) -> list[dict[str, str]]:
        """List the sandbox's lifecycle events, oldest first, as plain JSON: time, kind, reason, actor."""
        attachment = self._attached()
        request = sandbox_pb2.ListEventsRequest(sandbox_id=attachment.record.sandbox_id, page_size=1000)
        connection, timeout = attachment.usable(), self._config.timeout
        response = await connection.ask(lambda stubs: stubs.sandboxes.ListEvents, request, timeout)
        return [read_event(event) for event in response.events]

    async def get_status(self) -> str:
        """Return the sandbox's state in lower case: "ready", "paused", "stopping", ..., or "gone"."""
        attachment = self._attached()
        try:
            record = await get_record(attachment.usable(), attachment.record.sandbox_id, self._config.timeout)
        except SandboxNotFound:
            return "gone"
        return read_state(record).lower()

    async def check_health(self) -> bool:
        """Return whether the sandbox is ready and its agent responds within five seconds."""
        attachment = self._attached()
        record, connection = attachment.record, attachment.usable()
        request = call_pb2.ListToolsRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token, group="generic"
        )
        seconds = min(self._config.timeout, HEALTH_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                # A paused sandbox would hold the request until it is resumed.
                if await self.get_status() != "ready":
                    return False
                await connection.ask(lambda stubs: stubs.calls.ListTools, request, seconds)
        except (SandmeshError, TimeoutError):
            return False
        return True

    async def pause(self, mode: PauseMode = "memory") -> None:
        """Pause the sandbox; requests resume it. Its lease goes on.

        "memory" freezes every process. "files" ends them, so that their memory is free, and keeps what the sandbox has
        written. "checkpoint" writes memory to disk. A mode that the driver lacks is refused.

        Raises:
            CapabilityMissing: Its driver lacks the mode: docker and gvisor have "memory", bubblewrap "files", too.
            WrongState: It is paused in another mode.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.PauseSandboxRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token, mode=write_pause_mode(mode)
        )
        await attachment.usable().ask(lambda stubs: stubs.sandboxes.PauseSandbox, request, self._config.timeout)

    async def resume(self) -> None:
        """Resume a paused sandbox; a running one is left unchanged.

        Raises:
            CapabilityMissing: Its driver cannot resume.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.ResumeSandboxRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token
        )
        await attachment.usable().ask(lambda stubs: stubs.sandboxes.ResumeSandbox, request, self._config.timeout)
