"""The manager of sandboxes by id, over boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self, cast

from sandmesh import Sandbox, SandboxRegistry, SandboxType, ToolResult
from sandmesh.errors import InvalidArgument, SandboxNotFound


class SandboxManager:
    """Makes sandboxes, and acts on them by id. What it made ends with `cleanup`, or with the mesh's own lease.

    How a mesh is configured is the mesh's own (`sandmesh up`): `config` is refused.
    """

    def __init__(
        self,
        config: object = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        default_type: str | SandboxType = "base",
    ) -> None:
        """Say which mesh is meant, as for a box.

        Raises:
            InvalidArgument: There is a `config`.
        """
        if config is not None:
            message = "a mesh is configured where it runs (sandmesh up, docs/migrating.md), not by its clients"
            raise InvalidArgument(message, {"argument": "config"})
        self.default_type = SandboxType.known(str(default_type))
        self._address = (base_url, bearer_token)
        self._boxes: dict[str, Sandbox] = {}

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Clean up."""
        self.cleanup()

    def create(
        self, sandbox_type: str | SandboxType | None = None, environment: Mapping[str, str] | None = None
    ) -> str:
        """Make a sandbox and give its id; it comes from a pool where the mesh has one."""
        kind = str(sandbox_type or self.default_type)
        made = cast("type[Sandbox] | None", SandboxRegistry.get_classes_by_type(kind)) or Sandbox
        options: dict[str, Any] = {"env": environment} if environment else {}
        if made is Sandbox:
            options["sandbox_type"] = kind
        box = made(None, 3000, *self._address, **options).start()
        self._boxes[box.sandbox_id] = box
        return box.sandbox_id

    def create_from_pool(self, sandbox_type: str | SandboxType | None = None) -> str:
        """Do what `create` does."""
        return self.create(sandbox_type)

    def release(self, identity: str) -> bool:
        """Give back a sandbox that this made; False where it made none of that id."""
        box = self._boxes.pop(identity, None)
        if box is not None:
            box.close()
        return box is not None

    def cleanup(self) -> None:
        """Give back every sandbox that this made."""
        for identity in list(self._boxes):
            self.release(identity)

    def get_info(self, identity: str) -> dict[str, Any]:
        """Give a sandbox's record."""
        return self._box(identity).get_info()

    def get_status(self, identity: str) -> str:
        """Give a sandbox's state in lower case: "ready", ...; of one that is gone "gone"."""
        try:
            return str(self._box(identity).get_info()["state"]).lower()
        except SandboxNotFound:
            return "gone"

    def list_tools(self, identity: str, tool_type: str | None = None) -> dict[str, Any]:
        """Give what a sandbox can do."""
        return self._box(identity).list_tools(tool_type)

    def call_tool(
        self, identity: str, tool_name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Run a tool of a sandbox."""
        return self._box(identity).call_tool(tool_name or "", arguments)

    def add_mcp_servers(self, identity: str, server_configs: Mapping[str, Any], overwrite: bool = False) -> Any:
        """Add MCP servers to a sandbox."""
        return self._box(identity).add_mcp_servers(server_configs, overwrite)

    async def create_from_pool_async(self, sandbox_type: str | SandboxType | None = None) -> str:
        """Do what `create_from_pool` does."""
        return await asyncio.to_thread(self.create_from_pool, sandbox_type)

    async def release_async(self, identity: str) -> bool:
        """Do what `release` does."""
        return await asyncio.to_thread(self.release, identity)

    async def cleanup_async(self) -> None:
        """Do what `cleanup` does."""
        await asyncio.to_thread(self.cleanup)

    async def call_tool_async(
        self, identity: str, tool_name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Do what `call_tool` does."""
        return await asyncio.to_thread(self.call_tool, identity, tool_name, arguments)

    def _box(self, identity: str) -> Sandbox:
        box = self._boxes.get(identity)
        if box is None:
            # Made by another: attached to, and left as it is by `cleanup`.
            box = Sandbox(identity, 3000, *self._address).start()
            self._boxes[identity] = box
        return box
