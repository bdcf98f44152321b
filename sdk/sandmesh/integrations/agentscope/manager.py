"""A manager of workspaces for AgentScope's application: `create_app(workspace_manager=...)`."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Self

from sandmesh.integrations.agentscope.workspace import Place, SandmeshWorkspace
from sandmesh.integrations.versions import framework

with framework("agentscope"):
    from agentscope.app.workspace_manager import IsolationPolicy, WorkspaceManagerBase
    from agentscope.mcp import MCPClient


@dataclass
class _Open:
    workspace: SandmeshWorkspace
    used: float


class SandmeshWorkspaceManager(WorkspaceManagerBase):
    """Opens workspaces by their ids, and closes those unused for `idle_seconds`; sandboxes stay."""

    def __init__(
        self,
        place: Place | None = None,
        *,
        isolation: IsolationPolicy = IsolationPolicy.PER_AGENT,
        default_mcps: list[MCPClient] | None = None,
        skill_paths: list[str] | None = None,
        idle_seconds: float = 3600.0,
    ) -> None:
        super().__init__(isolation=isolation)
        self._place = place or Place()
        self._default_mcps, self._skill_paths = default_mcps, skill_paths
        self._idle_seconds = idle_seconds
        self._open: dict[str, _Open] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closing: asyncio.Task[None] | None = None

    async def get_workspace(
        self, user_id: str, agent_id: str, session_id: str, workspace_id: str | None = None
    ) -> SandmeshWorkspace:
        """Return a workspace that is open: that of the id, else the one of the user, agent and session.

        Raises:
            SandmeshError: There is no mesh, or no sandbox could be created.
        """
        name = workspace_id or await self.assign_workspace_id(user_id=user_id, agent_id=agent_id, session_id=session_id)
        async with self._locks[name]:
            found = self._open.get(name)
            if found is None:
                workspace = SandmeshWorkspace(
                    self._place,
                    workspace_id=name,
                    labels={"workspace.user.id": user_id[:255], "workspace.agent.id": agent_id[:255]},
                    default_mcps=self._default_mcps,
                    skill_paths=self._skill_paths,
                )
                await _initialize(workspace)
                found = self._open[name] = _Open(workspace, 0.0)
            found.used = time.monotonic()
            return found.workspace

    async def close(self, workspace_id: str) -> None:
        """Close a workspace, if it is open; its sandbox stays."""
        async with self._locks[workspace_id]:
            found = self._open.pop(workspace_id, None)
            if found is not None:
                await found.workspace.close()

    async def close_all(self) -> None:
        """Close all workspaces; their sandboxes stay."""
        await asyncio.gather(*(self.close(name) for name in list(self._open)))

    async def __aenter__(self) -> Self:
        """Begin to close idle workspaces."""
        self._closing = asyncio.create_task(self._close_idle())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close all workspaces."""
        if self._closing is not None:
            self._closing.cancel()
            await asyncio.gather(self._closing, return_exceptions=True)
            self._closing = None
        await self.close_all()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(60.0, self._idle_seconds / 2))
            before = time.monotonic() - self._idle_seconds
            for name in [name for name, one in self._open.items() if one.used < before]:
                await self.close(name)


async def _initialize(workspace: SandmeshWorkspace) -> None:
    try:
        await workspace.initialize()
    except BaseException:
        await workspace.close()
        raise
