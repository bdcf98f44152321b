"""The manager of sandboxes by id, over boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self, cast

from sandmesh import Sandbox, SandboxRegistry, SandboxService, SandboxType, ToolResult
from sandmesh.errors import InvalidArgument, SandboxLost, SandboxNotFound, SessionNotFound


class BlockingManager:
    """Creates sandboxes, and acts on them by id. Those it created end with `cleanup`, or when their lease expires.

    A sandbox whose `meta` has a `session_ctx_id` is the one of that session of the user named "default", from any
    process. A mesh is configured where it runs (`sandmesh up`): `config` is refused.
    """

    def __init__(
        self,
        config: object = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        default_type: str | SandboxType = "base",
    ) -> None:
        """Configure the mesh, as for a box.

        Raises:
            InvalidArgument: `config` is set.
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
        """Return the manager itself."""
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
        """Create a sandbox and return its id; it comes from a pool if the mesh has one.

        Raises:
            InvalidArgument: `mount_dir` or `storage_path` is set, `meta` has an unknown key, or a session's sandbox is
                to have an environment.
        """
        if mount_dir is not None or storage_path is not None:
            raise _refused("mount_dir and storage_path: the mesh stores workspaces itself, see docs/storage.md")
        session = _session(meta, environment)
        return self._create(sandbox_type, environment) if session is None else self._connect(session, sandbox_type)

    def create_from_pool(
        self, sandbox_type: str | SandboxType | None = None, meta: Mapping[str, Any] | None = None
    ) -> str:
        """Call `create`."""
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
        """Release a sandbox that this created, and its session if it has one; return False where none has that id."""
        box, session = self._boxes.pop(identity, None), self._sessions.pop(identity, None)
        if session is not None:
            return self._service.release(session)
        if box is not None:
            box.close()
        return box is not None

    def cleanup(self) -> None:
        """Release every sandbox that this created."""
        for identity in list(self._boxes):
            self.release(identity)
        if self._serving:
            self._serving = False
            self._service.__exit__()

    def list_session_keys(self) -> list[str]:
        """List the `session_ctx_id` of every session."""
        return [session.session_id for session in self._service.list_sessions()]

    def get_session_mapping(self, session_ctx_id: str) -> list[str]:
        """Return the ids of a session's sandboxes, none if it does not exist."""
        try:
            return list(self._service.get_session(session_ctx_id).sandboxes.values())
        except SessionNotFound:
            return []

    def start(self, identity: str) -> bool:
        """Resume a stopped sandbox.

        Raises:
            CapabilityMissing: Its driver cannot resume.
        """
        self._box(identity).resume()
        return True

    def stop(self, identity: str) -> bool:
        """Pause a sandbox until it is started.

        Raises:
            CapabilityMissing: Its driver cannot pause.
        """
        self._box(identity).pause()
        return True

    def get_info(self, identity: str) -> dict[str, Any]:
        """Return a sandbox's record."""
        return self._box(identity).get_info()

    def get_status(self, identity: str) -> str:
        """Return a sandbox's state in lower case: "ready", ..., or "gone"."""
        try:
            return self._box(identity).get_status()
        except SandboxNotFound:
            return "gone"
        except SandboxLost as error:
            return error.facts.get("state", "lost").lower()

    def check_health(self, identity: str) -> bool:
        """Return whether a sandbox is ready and responds."""
        try:
            return self._box(identity).check_health()
        except (SandboxNotFound, SandboxLost):
            return False

    def list_tools(self, identity: str, tool_type: str | None = None) -> dict[str, Any]:
        """List a sandbox's tools."""
        return self._box(identity).list_tools(tool_type)

    def call_tool(
        self, identity: str, tool_name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Run a tool of a sandbox."""
        return self._box(identity).call_tool(tool_name or "", arguments)

    def add_mcp_servers(self, identity: str, server_configs: Mapping[str, Any], overwrite: bool = False) -> Any:
        """Add MCP servers to a sandbox."""
        return self._box(identity).add_mcp_servers(server_configs, overwrite)

    def _box(self, identity: str) -> Sandbox:
        box = self._boxes.get(identity)
        if box is None:
            # Created by another program: attached to, and not released by `cleanup`.
            box = Sandbox(identity, 3000, *self._address).start()
            self._boxes[identity] = box
        return box


class SandboxManager(BlockingManager):
    """A manager whose methods also exist as coroutines, which run in a thread."""

    async def create_from_pool_async(
        self, sandbox_type: str | SandboxType | None = None, meta: Mapping[str, Any] | None = None
    ) -> str:
        """Call `create_from_pool`."""
        return await asyncio.to_thread(self.create_from_pool, sandbox_type, meta)

    async def release_async(self, identity: str) -> bool:
        """Call `release`."""
        return await asyncio.to_thread(self.release, identity)

    async def cleanup_async(self) -> None:
        """Call `cleanup`."""
        await asyncio.to_thread(self.cleanup)

    async def list_session_keys_async(self) -> list[str]:
        """Call `list_session_keys`."""
        return await asyncio.to_thread(self.list_session_keys)

    async def get_session_mapping_async(self, session_ctx_id: str) -> list[str]:
        """Call `get_session_mapping`."""
        return await asyncio.to_thread(self.get_session_mapping, session_ctx_id)

    async def get_status_async(self, identity: str) -> str:
        """Call `get_status`."""
        return await asyncio.to_thread(self.get_status, identity)

    async def check_health_async(self, identity: str) -> bool:
        """Call `check_health`."""
        return await asyncio.to_thread(self.check_health, identity)

    async def start_async(self, identity: str) -> bool:
        """Call `start`."""
        return await asyncio.to_thread(self.start, identity)

    async def stop_async(self, identity: str) -> bool:
        """Call `stop`."""
        return await asyncio.to_thread(self.stop, identity)

    async def call_tool_async(
        self, identity: str, tool_name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Call `call_tool`."""
        return await asyncio.to_thread(self.call_tool, identity, tool_name, arguments)


def _session(meta: Mapping[str, Any] | None, environment: Mapping[str, str] | None) -> str | None:
    """Return the session that `meta` names, None if there is none."""
    unknown = sorted(set(meta or {}) - {"session_ctx_id"})
    if unknown:
        raise _refused(f"meta: {unknown[0]} is not supported; the only key is session_ctx_id")
    session = (meta or {}).get("session_ctx_id")
    if session is not None and environment:
        raise _refused("environment: sandboxes of a session have the one of their type; register a class with yours")
    return None if session is None else str(session)


def _refused(message: str) -> InvalidArgument:
    return InvalidArgument(message, {"argument": message.partition(":")[0]})
