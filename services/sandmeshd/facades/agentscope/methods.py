"""The methods of the SDK's manager, each a route of its name and of its name with `_async`."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, cast

from sandmesh import ToolResult
from sandmesh._tools import TOOLS
from sandmesh.inputs import Options
from sandmesh.mesh import MeshAsync, SandboxInfo
from sandmeshd.facades.agentscope.boxes import SECONDS, BoxHandles
from sandmeshd.facades.agentscope.desktop import Desktops
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients

LABEL: Final = "agentscope"
"""Marks the sandboxes of this door; its value is their session."""

KIND: Final = "agentscope-type"
"""The type of a sandbox that has another template; only the sandbox's owner could have set it."""
PLAIN: Final = "filesystem"
WITH_DESKTOP: Final = "gui"
"""What `filesystem` has and a desktop, as the type has there: it starts when it is first asked for."""

NOBODY: Final = "agentscope"
"""The user whose sessions are those of clients without a token, where these are let in."""

LEASE_SECONDS: Final = 7 * 86_400.0
_RENAMED: Final = {"dryRun": "dry_run", "excludePatterns": "exclude_patterns"}
_TOOLS: Final = {"computer": "computer_use"}
_TRAINING: Final = frozenset(name for name, tool in TOOLS.items() if tool.group == "training")
_ENDED: Final = frozenset({"STOPPING", "GONE", "FAILED", "LOST"})


class Methods:
    """Answers each method in the name of a token; what is not sent is None."""

    def __init__(self, clients: MeshClients, boxes: BoxHandles, desktops: Desktops, idle_seconds: float) -> None:
        self._clients = clients
        self._boxes = boxes
        self._desktops = desktops
        self._idle_seconds = idle_seconds
        self._desktop_ready = False

    async def create_from_pool(
        self, token: str, sandbox_type: str | None = None, meta: dict[str, Any] | None = None
    ) -> str:
        """Return the sandbox of this type of a session, which is new where it had none."""
        return await self.create(token, sandbox_type, meta=meta)

    async def create(
        self,
        token: str,
        sandbox_type: str | None = None,
        mount_dir: str | None = None,
        storage_path: str | None = None,
        environment: dict[str, str] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> str:
        """Return the sandbox of this type of a session, which is new where it had none."""
        if mount_dir or storage_path:
            raise RequestError(400, "mount_dir and storage_path: the mesh stores workspaces itself; leave them out")
        facts: dict[str, Any] = meta or {}
        session = str(facts.get("session_ctx_id") or uuid.uuid4().hex)
        options: Options = {"labels": {LABEL: session}, "ttl": LEASE_SECONDS, "idle_timeout": self._idle_seconds}
        if environment:
            options["env"] = environment
        kind = (sandbox_type or "base").removesuffix("_async")
        async with self._clients.client(token) as mesh:
            if kind == PLAIN and await self._has_desktop(mesh):
                options["template"], options["labels"] = WITH_DESKTOP, {LABEL: session, KIND: kind}
            made = await mesh.sessions.connect(session, None if token else NOBODY, sandbox_type=kind, **options)
            if kind in made.sandboxes:
                return made.sandboxes[kind]
            return list(made.sandboxes.values())[-1]

    async def release(self, token: str, identity: str) -> bool:
        """End a sandbox; return False where there is none."""
        async with self._clients.client(token) as mesh:
            try:
                info = await mesh.sandboxes.get(identity)
            except (LookupError, ValueError):
                return False
            if info.state in _ENDED:
                return False
            await mesh.sandboxes.kill(identity)
        await self._boxes.forget(token, identity)
        return True

    async def cleanup(self, token: str) -> None:
        """End every sandbox that the token's user made by this door."""
        for info in await self._own(token):
            await self.release(token, info.sandbox_id)

    async def start(self, token: str, identity: str) -> bool:
        """Resume a stopped sandbox."""
        await (await self._boxes.box(token, identity)).resume()
        return True

    async def stop(self, token: str, identity: str) -> bool:
        """Pause a sandbox until it is started."""
        await (await self._boxes.box(token, identity)).pause()
        return True

    async def get_status(self, token: str, identity: str) -> str:
        """Return a sandbox's state as a container's."""
        info = await self._info(token, identity)
        return {"READY": "running", "PAUSED": "paused"}.get(info.state, info.state.lower())

    async def get_info(self, token: str, identity: str) -> dict[str, Any]:
        """Return what is known of a sandbox."""
        info = await self._info(token, identity)
        return {**describe(info), "runtime_token": await self._desktops.password(token, info)}

    async def check_health(self, token: str, identity: str) -> bool:
        """Return whether a sandbox is ready and answers."""
        return await (await self._boxes.box(token, identity)).check_health()

    async def list_tools(self, token: str, identity: str, tool_type: str | None = None) -> dict[str, Any]:
        """List a sandbox's tools by group."""
        return await (await self._boxes.box(token, identity)).list_tools(tool_type)

    async def call_tool(
        self, token: str, identity: str, tool_name: str | None = None, arguments: dict[str, Any] | None = None
    ) -> Any:
        """Run a tool of a sandbox; of an environment return what it returned, without the form of a tool's result."""
        if not tool_name:
            raise RequestError(400, "tool_name is missing")
        box = await self._boxes.box(token, identity)
        name = _TOOLS.get(tool_name, tool_name)
        result = await box.call_tool(name, _arguments(name, arguments or {}))
        return _plain(result) if name in _TRAINING else result

    async def add_mcp_servers(
        self, token: str, identity: str, server_configs: dict[str, Any], overwrite: bool = False
    ) -> Any:
        """Add MCP servers to a sandbox, as its own server does: "OK", or a result that names those that failed.

        Without `overwrite` a server that is there stays as it is, so that a program may add its servers again.

        Raises:
            RequestError: A configuration does not fit.
        """
        # Whose sandbox it is comes first.
        box = await self._boxes.box(token, identity)
        servers = _servers(server_configs)
        if not overwrite:
            present = {server.name for server in await box.list_mcp_servers()}
            servers = {name: config for name, config in servers.items() if name not in present}
        added = await box.add_mcp_servers({"mcpServers": servers}, overwrite) if servers else []
        failed = [f"{server.name} ({server.error})" for server in added if server.state == "FAILED"]
        if not failed:
            return "OK"
        text = f"Failed to initialize server: {'; '.join(failed)}"
        return {"meta": None, "content": [{"type": "text", "text": text}], "isError": True}

    async def get_session_mapping(self, token: str, session_ctx_id: str) -> list[str]:
        """Return the ids of a session's sandboxes."""
        return [info.sandbox_id for info in await self._own(token) if info.labels[LABEL] == session_ctx_id]

    async def list_session_keys(self, token: str) -> list[str]:
        """Return the sessions that have sandboxes."""
        return list(dict.fromkeys(info.labels[LABEL] for info in await self._own(token)))

    async def _has_desktop(self, mesh: MeshAsync) -> bool:
        if not self._desktop_ready:
            found = [template for template in await mesh.templates.list() if template.name == WITH_DESKTOP]
            self._desktop_ready = any(node.prepared for one in found for node in one.nodes)
        return self._desktop_ready

    async def _own(self, token: str) -> list[SandboxInfo]:
        async with self._clients.client(token) as mesh:
            found = await mesh.sandboxes.list()
        return [info for info in found if info.in_use and LABEL in info.labels]

    async def _info(self, token: str, identity: str) -> SandboxInfo:
        async with self._clients.client(token) as mesh:
            try:
                info = await mesh.sandboxes.get(identity)
            except (LookupError, ValueError):
                info = None
        if info is None or info.state in _ENDED:
            raise RequestError(404, f"No container found with id: {identity}.")
        return info


def describe(info: SandboxInfo) -> dict[str, Any]:
    """Return a sandbox as a container of the old server; it has no address."""
    session, kind = info.labels.get(LABEL, info.session_key), info.labels.get(KIND, info.template)
    return {
        "session_id": info.sandbox_id,
        "container_id": info.sandbox_id,
        "container_name": info.sandbox_id,
        "url": "",
        "ports": [],
        "mount_dir": None,
        "storage_path": None,
        "runtime_token": None,
        # Clients look for the type's name in it.
        "version": f"agentscope/runtime-sandbox-{kind}:latest",
        "meta": {"session_ctx_id": session},
        "timeout": int(SECONDS),
        "sandbox_type": kind,
        "state": "running",
        "session_ctx_id": session,
        "last_active_at": None,
        "recycled_at": None,
        "released_at": None,
        "updated_at": time.time(),
        "recycle_reason": None,
        "redirect_to": None,
    }


def _servers(configs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the servers of a client's configuration by name.

    Raises:
        RequestError: It holds none.
    """
    servers: object = configs.get("mcpServers")
    if not isinstance(servers, dict) or not servers:
        raise RequestError(400, 'server_configs is {"mcpServers": {NAME: {"command": ...}}}, with one server at least')
    return cast("dict[str, Any]", servers)


def _plain(result: ToolResult) -> Any:
    """Return what a training environment returned.

    Raises:
        RequestError: The request failed.
    """
    if result.is_error:
        raise RequestError(400, result.text)
    try:
        return json.loads(result.text)
    except (ValueError, RecursionError):
        raise RequestError(400, "the environment's answer is not JSON") from None


def _arguments(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's arguments by their names here, without those that clients send for what was not sent."""
    # Of the browser's tools also an empty text stands for that.
    nothing = (None, "") if tool.startswith("browser_") else (None,)
    return {_RENAMED.get(name, name): value for name, value in arguments.items() if value not in nothing}
