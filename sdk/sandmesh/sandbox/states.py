"""What state a sandbox is in, whether it answers, and holding it still: a part of every async box."""

from __future__ import annotations

import asyncio
from abc import abstractmethod

from sandmesh._client.messages import read_state
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandboxNotFound, SandmeshError
from sandmesh.sandbox.attachment import Attachment, Wanted, get_record

HEALTH_SECONDS = 5.0


class StatesAsync:
    """The methods of a box that are about its sandbox's state."""

    _wanted: Wanted

    @abstractmethod
    def _attached(self) -> Attachment:
        """Give the box's tie to its sandbox."""

    async def get_status(self) -> str:
        """Give the sandbox's state in lower case: "ready", "paused", "stopping", ...; of one that is gone "gone"."""
        attachment = self._attached()
        try:
            record = await get_record(attachment.usable(), attachment.record.sandbox_id, self._wanted.timeout)
        except SandboxNotFound:
            return "gone"
        return read_state(record).lower()

    async def check_health(self) -> bool:
        """Say whether the sandbox is ready and what runs its tools answers, within five seconds."""
        attachment = self._attached()
        record, connection = attachment.record, attachment.usable()
        request = call_pb2.ListToolsRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token, group="generic"
        )
        seconds = min(self._wanted.timeout, HEALTH_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                # A paused one would keep the question until it runs again.
                if await self.get_status() != "ready":
                    return False
                await connection.ask(lambda stubs: stubs.calls.ListTools, request, seconds)
        except (SandmeshError, TimeoutError):
            return False
        return True

    async def pause(self) -> None:
        """Hold every process of the sandbox still, with its memory and files; its lease goes on.

        Raises:
            CapabilityMissing: Its driver cannot: bubblewrap's does not, docker's does.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.PauseSandboxRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token
        )
        await attachment.usable().ask(lambda stubs: stubs.sandboxes.PauseSandbox, request, self._wanted.timeout)

    async def resume(self) -> None:
        """Let a sandbox that was paused go on where it was; one that runs stays as it is.

        Raises:
            CapabilityMissing: Its driver cannot.
        """
        attachment = self._attached()
        record = attachment.record
        request = sandbox_pb2.ResumeSandboxRequest(
            sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token
        )
        await attachment.usable().ask(lambda stubs: stubs.sandboxes.ResumeSandbox, request, self._wanted.timeout)
