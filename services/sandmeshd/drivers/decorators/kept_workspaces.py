"""A driver whose sandboxes' workspaces are saved before they are deleted, and restored before anybody uses them.

Profiles of browsers are saved and restored likewise, encrypted: cookies are as good as passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxLost, SandboxNotFound
from sandmeshd.agentlink.archives import packed, profile_packed, profile_unpacked, unpacked
from sandmeshd.auth.stream_sealer import StreamSealer
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.driver_forwarder import ForwardingDriver
from sandmeshd.storage import WorkspaceSnapshots

log = structlog.get_logger()

_ANSWERING = {pb.RUNTIME_STATE_RUNNING, pb.RUNTIME_STATE_PAUSED}


class WorkspaceKeeper(ForwardingDriver):
    """A Driver with a storage, which the three requests that name a workspace use.

    A create or a lease from a pool returns when the workspace is as it was saved. A deletion saves first; where that
    fails the sandbox stays, and the caller retries.
    """

    def __init__(self, driver: Driver, snapshots: WorkspaceSnapshots, sealer: StreamSealer) -> None:
        super().__init__(driver)
        self._snapshots = snapshots
        self._sealer = sealer
        self._locks: dict[str, asyncio.Lock] = {}

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do, and that it keeps workspaces."""
        info = await self._driver.get_info(request)
        info.keeps_workspaces = True
        return info

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox; return when its agent listens and its workspace is restored."""
        made = await self._driver.create_sandbox(request)
        workspace, profile = _keys(request.workspace_key)
        # A snapshot takes precedence over the saved workspace.
        if (workspace and not request.spec.snapshot_id) or profile:
            try:
                if workspace and not request.spec.snapshot_id:
                    await self._restore(made.sandbox, request.fencing_token, workspace)
                if profile:
                    await self._restore_profile(made.sandbox, request.fencing_token, profile)
            except BaseException:
                # Nothing is left of a create that fails, or whose caller went away.
                await asyncio.shield(
                    self._driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=request.sandbox_id))
                )
                raise
        return made

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Restore the workspace of a sandbox from a pool, then make its agent refuse every lower fencing token.

        Until the token is in force the sandbox is unused, so a request that is repeated restores again.
        """
        if not request.workspace_key:
            return await self._driver.install_token(request)
        async with self._locks.setdefault(request.sandbox_id, asyncio.Lock()):
            sandbox = await self._inspected(request.sandbox_id)
            try:
                # A sandbox that waits in a pool has the token 0.
                await self._restore(sandbox, 0, _keys(request.workspace_key)[0])
            except LeaseLost:
                log.debug("a sandbox has its holder and its workspace", sandbox_id=request.sandbox_id)
            return await self._driver.install_token(request)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Save the workspace where one is named, then remove the sandbox."""
        if request.workspace_key:
            async with self._locks.setdefault(request.sandbox_id, asyncio.Lock()):
                await self._save(request)
        answer = await self._driver.delete_sandbox(request)
        self._locks.pop(request.sandbox_id, None)
        return answer

    async def _restore(self, sandbox: pb.RuntimeSandbox, token: int, key: str) -> None:
        stream = await self._snapshots.restore(key)
        if stream is not None:
            await unpacked(sandbox, token, stream)
            log.info("a workspace was restored", sandbox_id=sandbox.sandbox_id, workspace=key)

    async def _restore_profile(self, sandbox: pb.RuntimeSandbox, token: int, key: str) -> None:
        stream = await self._snapshots.restore(key)
        if stream is not None:
            await profile_unpacked(sandbox, token, self._sealer.unsealed(key, stream))
            log.info("a browser's profile was restored", sandbox_id=sandbox.sandbox_id, profile=key)

    async def _save(self, request: pb.DeleteSandboxRequest) -> None:
        sandbox = await self._answering(request.sandbox_id)
        if sandbox is None:
            log.warning("an ended sandbox's workspace is as it was saved before", sandbox_id=request.sandbox_id)
            return
        workspace, profile = _keys(request.workspace_key)
        if profile:
            stream = profile_packed(sandbox, request.fencing_token)
            await self._save_stream(request, profile, stream, self._sealer.sealed(profile, stream))
        if workspace:
            stream = packed(sandbox, request.fencing_token)
            await self._save_stream(request, workspace, stream, stream)

    async def _save_stream(
        self, request: pb.DeleteSandboxRequest, key: str, source: AsyncGenerator[bytes], stream: AsyncIterator[bytes]
    ) -> None:
        try:
            saved = await self._snapshots.save(key, request.fencing_token, stream)
        except SandboxLost:
            if await self._answering(request.sandbox_id) is not None:
                raise
            log.warning("a sandbox ended while its workspace was saved", sandbox_id=request.sandbox_id)
            return
        except LeaseLost as error:
            log.warning("a workspace was not saved", sandbox_id=request.sandbox_id, error=error.message)
            return
        finally:
            await source.aclose()
        facts = {"workspace": key, "bytes": saved.size, "uploaded": saved.uploaded}
        log.info("a workspace was saved", sandbox_id=request.sandbox_id, **facts)

    async def _answering(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox whose agent can send its workspace, resumed if it is paused; None if there is none."""
        try:
            sandbox = await self._inspected(sandbox_id)
        except SandboxNotFound:
            return None
        if sandbox.state == pb.RUNTIME_STATE_PAUSED:
            await self._driver.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id=sandbox_id))
        return sandbox if sandbox.state in _ANSWERING else None

    async def _inspected(self, sandbox_id: str) -> pb.RuntimeSandbox:
        return (await self._driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))).sandbox


def _keys(workspace_key: str) -> tuple[str, str]:
    """Return what a workspace is saved under, and a browser's profile; empty for what is not kept."""
    workspace, _, profile = workspace_key.partition("+")
    return workspace, profile
