"""The sandboxes of a session, through the allocator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxNotFound
from sandmesh.shared.wire_errors import translated
from sandmeshd.broker.identity import SessionIdentity

_HELD = {
    sandbox_pb2.SANDBOX_STATE_PENDING,
    sandbox_pb2.SANDBOX_STATE_STARTING,
    sandbox_pb2.SANDBOX_STATE_READY,
    sandbox_pb2.SANDBOX_STATE_PAUSED,
    sandbox_pb2.SANDBOX_STATE_LOST,
}


class Leases:
    """Claim, renew, list and release sandboxes for sessions."""

    def __init__(self, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub) -> None:
        self._sandboxes = sandboxes

    async def claim(
        self, who: SessionIdentity, slot: pb.SlotSpec, timeout: float | None
    ) -> sandbox_pb2.ClaimSandboxResponse:
        """Claim one slot."""
        request = sandbox_pb2.ClaimSandboxRequest(
            spec=slot.spec,
            session_key=who.session_key,
            slot=slot.slot,
            ttl=slot.ttl if slot.HasField("ttl") else None,
            idle_timeout=slot.idle_timeout if slot.HasField("idle_timeout") else None,
            on_idle=slot.on_idle,
            auto_resume=slot.auto_resume if slot.HasField("auto_resume") else None,
            user_id=who.user_id,
            session_id=who.session_id,
            keep_workspace=who.named,
            batch=slot.batch if slot.HasField("batch") else None,
        )
        with translated():
            return await self._sandboxes.ClaimSandbox(request, timeout=timeout)

    async def of_session(self, session_key: str) -> list[sandbox_pb2.Sandbox]:
        """List what the session holds, by id."""
        request = sandbox_pb2.ListSandboxesRequest(session_key=session_key, page_size=1000)
        with translated():
            return list((await self._sandboxes.ListSandboxes(request)).sandboxes)

    async def renew(self, sandboxes: Sequence[sandbox_pb2.Sandbox], ttl: Duration | None) -> None:
        """Renew the leases that exist: a sandbox that never started has none.

        Raises:
            LeaseLost: One ran out or was released meanwhile.
        """
        held = [sandbox for sandbox in sandboxes if sandbox.state in _HELD]
        await asyncio.gather(*(self._renew(sandbox, ttl) for sandbox in held))

    async def _renew(self, sandbox: sandbox_pb2.Sandbox, ttl: Duration | None) -> None:
        request = sandbox_pb2.RenewLeaseRequest(
            sandbox_id=sandbox.sandbox_id, fencing_token=sandbox.lease.fencing_token, ttl=ttl
        )
        try:
            with translated():
                response = await self._sandboxes.RenewLease(request)
        except SandboxNotFound as error:
            raise LeaseLost(f"{error.message}: it was released meanwhile", error.facts) from None
        sandbox.lease.CopyFrom(response.lease)

    async def release(self, sandboxes: Sequence[sandbox_pb2.Sandbox]) -> list[str]:
        """Release all of them; return the ids of those whose deletion is recorded.

        Raises:
            SandmeshError: The first refusal, after all were tried.
        """
        answers = await asyncio.gather(*(self._release(sandbox) for sandbox in sandboxes), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sorted(sandbox.sandbox_id for sandbox in sandboxes)

    async def _release(self, sandbox: sandbox_pb2.Sandbox) -> None:
        request = sandbox_pb2.ReleaseSandboxRequest(
            sandbox_id=sandbox.sandbox_id, fencing_token=sandbox.lease.fencing_token
        )
        try:
            with translated():
                await self._sandboxes.ReleaseSandbox(request)
        except LeaseLost:
            # Its lease passed on between listing and releasing: it is no longer this session's to give back.
            return
