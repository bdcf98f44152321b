"""The manager of sandboxes by id, over boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self, cast

from sandmesh import Sandbox, SandboxRegistry, SandboxService, SandboxType, ToolResult
from sandmesh.errors import InvalidArgument, SandboxLost, SandboxNotFound, SessionNotFound


class SandboxManager:
    """Makes sandboxes, and acts on them by id. What it made ends with `cleanup`, or with the mesh's own lease.

    A sandbox whose `meta` names a `session_ctx_id` is the one of that session of the user named "default", from any
    process. How a mesh is configured is the mesh's own (`sandmesh up`): `config` is refused.
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
        self._sessions: dict[str, str] = {}
        self._service = SandboxService(*self._address)
        self._serving = False

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Clean up."""
        self.cleanup()

    def create(
        self,
        sandbox_type: str | SandboxType | None = None,
        mount_dir: str | None = None,
        storage_path: str | None = None,
        environment: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> str:
        """Make a sandbox and give its id; it comes from a pool where the mesh has one.

        Raises:
            InvalidArgument: `mount_dir` or `storage_path` is given, `meta` has what means nothing here, or a session's
                sandbox is to have an environment.
        """
        if mount_dir is not None or storage_path is not None:
            raise _refused("mount_dir and storage_path: the mesh keeps workspaces itself, see docs/storage.md")
        session = _session(meta, environment)
        return self._create(sandbox_type, environment) if session is None else self._connect(session, sandbox_type)

    def create_from_pool(
        self, sandbox_type: str | SandboxType | None = None, meta: Mapping[str, Any] | None = None
    ) -> str:
        """Do what `create` does."""
        return self.create(sandbox_type, meta=meta)

    def _create(self, sandbox_type: str | SandboxType | None, environment: Mapping[str, str] | None) -> str:
        kind = str(sandbox_type or self.default_type)
        made = cast("type[Sandbox] | None", SandboxRegistry.get_classes_by_type(kind)) or Sandbox
        options: dict[str, Any] = {"env": environment} if environment else {}
        if made is Sandbox:
            options["sandbox_type"] = kind
        box = made(None, 3000, *self._address, **options).start()
        self._boxes[box.sandbox_id] = box
        return box.sandbox_id

    def _connect(self, session: str, sandbox_type: str | SandboxType | None) -> str:
        if not self._serving:
            self._service.__enter__()
            self._serving = True
        (box,) = self._service.connect(session, None, [str(sandbox_type or self.default_type)])
        self._boxes[box.sandbox_id] = box
        self._sessions[box.sandbox_id] = session
        return box.sandbox_id

    def release(self, identity: str) -> bool:
        """Give back a sandbox that this made, of a session's with the session; False where it made none of that id."""
        box, session = self._boxes.pop(identity, None), self._sessions.pop(identity, None)
        if session is not None:
            return self._service.release(session)
        if box is not None:
            box.close()
        return box is not None

    def cleanup(self) -> None:
        """Give back every sandbox that this made."""
        for identity in list(self._boxes):
            self.release(identity)
        if self._serving:
            self._serving = False
            self._service.__exit__()

    def list_session_keys(self) -> list[str]:
        """Give the `session_ctx_id` of every session that there is."""
        return [session.session_id for session in self._service.list_sessions()]

    def get_session_mapping(self, session_ctx_id: str) -> list[str]:
        """Give the ids of a session's sandboxes; of one that there is not, none."""
        try:
            return list(self._service.get_session(session_ctx_id).sandboxes.values())
        except SessionNotFound:
            return []

    def start(self, identity: str) -> bool:
        """Let a sandbox that was stopped go on.

        Raises:
            CapabilityMissing: Its driver cannot.
        """
        self._box(identity).resume()
        return True

    def stop(self, identity: str) -> bool:
        """Hold a sandbox still until it is started.

        Raises:
            CapabilityMissing: Its driver cannot.
        """
        self._box(identity).pause()
        return True

    def get_info(self, identity: str) -> dict[str, Any]:
        """Give a sandbox's record."""
        return self._box(identity).get_info()

    def get_status(self, identity: str) -> str:
        """Give a sandbox's state in lower case: "ready", ...; of one that is gone "gone"."""
        try:
            return self._box(identity).get_status()
        except SandboxNotFound:
            return "gone"
        except SandboxLost as error:
            return error.facts.get("state", "lost").lower()

    def check_health(self, identity: str) -> bool:
        """Say whether a sandbox is ready and answers."""
        try:
            return self._box(identity).check_health()
        except (SandboxNotFound, SandboxLost):
            return False

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

    async def create_from_pool_async(
        self, sandbox_type: str | SandboxType | None = None, meta: Mapping[str, Any] | None = None
    ) -> str:
        """Do what `create_from_pool` does."""
        return await asyncio.to_thread(self.create_from_pool, sandbox_type, meta)

    async def release_async(self, identity: str) -> bool:
        """Do what `release` does."""
        return await asyncio.to_thread(self.release, identity)

    async def cleanup_async(self) -> None:
        """Do what `cleanup` does."""
        await asyncio.to_thread(self.cleanup)

    async def list_session_keys_async(self) -> list[str]:
        """Do what `list_session_keys` does."""
        return await asyncio.to_thread(self.list_session_keys)

    async def get_session_mapping_async(self, session_ctx_id: str) -> list[str]:
        """Do what `get_session_mapping` does."""
        return await asyncio.to_thread(self.get_session_mapping, session_ctx_id)

    async def get_status_async(self, identity: str) -> str:
        """Do what `get_status` does."""
        return await asyncio.to_thread(self.get_status, identity)

    async def check_health_async(self, identity: str) -> bool:
        """Do what `check_health` does."""
        return await asyncio.to_thread(self.check_health, identity)

    async def start_async(self, identity: str) -> bool:
        """Do what `start` does."""
        return await asyncio.to_thread(self.start, identity)

    async def stop_async(self, identity: str) -> bool:
        """Do what `stop` does."""
        return await asyncio.to_thread(self.stop, identity)

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


def _session(meta: Mapping[str, Any] | None, environment: Mapping[str, str] | None) -> str | None:
    """Give the session that a caller means, None where it means none."""
    unknown = sorted(set(meta or {}) - {"session_ctx_id"})
    if unknown:
        raise _refused(f"meta: {unknown[0]} has no effect; session_ctx_id is what a sandbox can be given")
    session = (meta or {}).get("session_ctx_id")
    if session is not None and environment:
        raise _refused("environment: sandboxes of a session have that of their type; register a class with yours")
    return None if session is None else str(session)


def _refused(message: str) -> InvalidArgument:
    return InvalidArgument(message, {"argument": message.partition(":")[0]})
