"""The environment manager of older releases, over a SandboxService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Self

from sandmesh import BaseSandbox
from sandmesh.compat.agentscope_runtime.service import SandboxService


class EnvironmentManager:
    """Connects sandboxes of sessions: `async with EnvironmentManager() as manager: manager.connect_sandbox(...)`."""

    def __init__(self, sandbox_service: SandboxService | None = None) -> None:
        """Use a service, by default one that finds its mesh as a box does."""
        self._service = sandbox_service or SandboxService()

    async def __aenter__(self) -> Self:
        """Start the service."""
        await self._service.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop it."""
        await self._service.stop()

    def connect_sandbox(
        self, session_id: str, user_id: str | None = None, env_types: Sequence[str] | None = None
    ) -> list[BaseSandbox]:
        """Call `SandboxService.connect`."""
        return self._service.connect(session_id, user_id, env_types or ("base",))

    def release_sandbox(self, session_id: str, user_id: str | None = None) -> bool:
        """Call `SandboxService.release`."""
        return self._service.release(session_id, user_id)


@asynccontextmanager
async def create_environment_manager(
    sandbox_service: SandboxService | None = None,
) -> AsyncGenerator[EnvironmentManager]:
    """Open a started manager, until the block ends."""
    async with EnvironmentManager(sandbox_service) as manager:
        yield manager
