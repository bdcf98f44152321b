"""The sandboxes of a mesh and their logs."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress

from sandmesh._client.messages import read_name, write_pause_mode
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, LeaseLost, NotFound
from sandmesh.inputs import PauseMode
from sandmesh.mesh.messages import read_sandbox
from sandmesh.mesh.records import LogChunk, SandboxInfo
from sandmesh.mesh.rpc import Rpc, Subscription
from sandmesh.results import Listing
from sandmesh.sandbox.network import NetworkAsync

PAGE_SIZE = 1000
TAIL_BYTES = 64 * 1024
LARGEST_TAIL = 1 << 20
POLL_SECONDS = 0.3
RELEASES_AT_ONCE = 64


class SandboxesAsync:
    """The sandboxes of a mesh: `mesh.sandboxes`."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        state: str | None = None,
        template: str | None = None,
        user_id: str | None = None,
        session_key: str | None = None,
    ) -> builtins.list[SandboxInfo]:
        """Return the sandboxes, by id: those with all these labels, in this state (any case), of this template, ...

        Sandboxes in pools and ended ones are among them; `SandboxInfo.in_use` tells them apart.
        """
        request = pb.ListSandboxesRequest(labels=labels, session_key=session_key or "", page_size=PAGE_SIZE)
        found: list[SandboxInfo] = []
        while True:
            page = await self._rpc.send(lambda stubs: stubs.sandboxes.ListSandboxes, request)
            found += [read_sandbox(sandbox) for sandbox in page.sandboxes]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        filters = {"state": state and state.upper(), "template": template, "user_id": user_id}
        return Listing(
            sandbox
            for sandbox in found
            if all(want in (None, getattr(sandbox, name)) for name, want in filters.items())
        )

    async def get(self, sandbox_id: str) -> SandboxInfo:
        """Return a sandbox's record.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
        """
        request = pb.GetSandboxRequest(sandbox_id=read_name("sandbox_id", sandbox_id))
        return read_sandbox((await self._rpc.send(lambda stubs: stubs.sandboxes.GetSandbox, request)).sandbox)

    def network(self, sandbox_id: str) -> NetworkAsync:
        """Return the network of a sandbox: show, allow, deny, set."""
        return NetworkAsync(read_name("sandbox_id", sandbox_id), self._rpc.connection, self._rpc.timeout)

    async def kill(self, sandbox_id: str) -> None:
        """Release a sandbox, even a leased one: it is deleted with everything in it, which finishes in the background.

        Its holder is told that it was killed, and whether by an administrator.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
        """
        token = await self._token(sandbox_id)
        request = pb.ReleaseSandboxRequest(sandbox_id=sandbox_id, fencing_token=token, killed=True)
        await self._rpc.send(lambda stubs: stubs.sandboxes.ReleaseSandbox, request)

    async def pause(self, sandbox_id: str, mode: PauseMode = "memory") -> SandboxInfo:
        """Pause a sandbox of any holder, as `pause` of a box does, and return its record; its lease continues.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: Its driver cannot pause in this mode.
            WrongState: It is neither READY nor PAUSED, or is paused in another mode.
        """
        written = write_pause_mode(mode)
        token = await self._token(sandbox_id)
        request = pb.PauseSandboxRequest(sandbox_id=sandbox_id, fencing_token=token, mode=written)
        return read_sandbox((await self._rpc.send(lambda stubs: stubs.sandboxes.PauseSandbox, request)).sandbox)

    async def resume(self, sandbox_id: str) -> SandboxInfo:
        """Resume a paused sandbox of any holder, and return its record; a running one is left unchanged.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            WrongState: It is neither READY nor PAUSED.
        """
        request = pb.ResumeSandboxRequest(sandbox_id=sandbox_id, fencing_token=await self._token(sandbox_id))
        return read_sandbox((await self._rpc.send(lambda stubs: stubs.sandboxes.ResumeSandbox, request)).sandbox)

    async def _token(self, sandbox_id: str) -> int:
        lease = (await self.get(sandbox_id)).lease
        return 0 if lease is None else lease.fencing_token

    async def release_all(self, labels: Mapping[str, str]) -> int:
        """Release every sandbox in use that has all these labels, regardless of its holder; return their number.

        A batch's sandboxes have the label "job": `release_all({"job": "rollout-7"})`.

        Raises:
            InvalidArgument: There is no label, which would mean every sandbox.
        """
        if not labels:
            raise InvalidArgument("name at least one label: without one, every sandbox would be released", {})
        found = [sandbox for sandbox in await self.list(labels=labels) if sandbox.in_use]
        for start in range(0, len(found), RELEASES_AT_ONCE):
            batch = found[start : start + RELEASES_AT_ONCE]
            await asyncio.gather(*(self._release(one) for one in batch))
        return len(found)

    async def _release(self, sandbox: SandboxInfo) -> None:
        token = 0 if sandbox.lease is None else sandbox.lease.fencing_token
        request = pb.ReleaseSandboxRequest(sandbox_id=sandbox.sandbox_id, fencing_token=token, killed=True)
        with suppress(NotFound, LeaseLost):  # It was released meanwhile.
            await self._rpc.send(lambda stubs: stubs.sandboxes.ReleaseSandbox, request)

    async def logs(self, sandbox_id: str, *, tail_bytes: int = TAIL_BYTES, after_offset: int = 0) -> LogChunk:
        """Return the end of what a sandbox's agent and runtime wrote, at most `tail_bytes` (1 to 1048576).

        The output of calls is not in it. With `after_offset`, only what follows so many bytes of the whole log.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            RuntimeUnavailable: Its node does not answer.
        """
        request = pb.GetSandboxLogsRequest(
            sandbox_id=read_name("sandbox_id", sandbox_id), tail_bytes=tail_bytes, after_offset=after_offset
        )
        response = await self._rpc.send(lambda stubs: stubs.sandboxes.GetSandboxLogs, request)
        return LogChunk(data=response.data, end_offset=response.end_offset)

    def follow_logs(self, sandbox_id: str, *, tail_bytes: int = TAIL_BYTES) -> Subscription[LogChunk]:
        """Return the end of a sandbox's log, then what is added, until the sandbox is gone.

        The iteration raises SandboxNotFound where there is no such sandbox at its start.
        """
        return Subscription(self._follow_logs(sandbox_id, tail_bytes))

    async def _follow_logs(self, sandbox_id: str, tail_bytes: int) -> AsyncGenerator[LogChunk]:
        chunk = await self.logs(sandbox_id, tail_bytes=tail_bytes)
        while True:
            if chunk.data:
                yield chunk
            await asyncio.sleep(POLL_SECONDS)
            try:
                chunk = await self.logs(sandbox_id, tail_bytes=LARGEST_TAIL, after_offset=chunk.end_offset)
            except NotFound:
                return
