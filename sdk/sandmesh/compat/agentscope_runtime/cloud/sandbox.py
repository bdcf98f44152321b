"""What every sandbox in a cloud has, over the few calls that differ from one cloud to the next."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from sandmesh.compat.agentscope_runtime.boxes import Sandbox
from sandmesh.compat.agentscope_runtime.cloud.types import AGENTBAY
from sandmesh.errors import CapabilityMissing

_log = logging.getLogger("sandmesh")
NOT_CREATED = "Failed to create cloud sandbox. Please check your cloud API credentials and configuration."


class _NoMesh:
    """Stands where a box has its connection to a mesh, and refuses what would need one."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> NoReturn:
        message = (
            f"a sandbox of {self._provider} is not in a mesh: it has call_tool, list_tools, get_info and close; "
            "for files, kernels, snapshots and the rest create a sandbox of a mesh"
        )
        raise CapabilityMissing(message, {"needs": name})


class CloudSandbox(Sandbox, ABC):
    """A sandbox that a cloud's API creates, calls and deletes; what derives from it says how.

    Without `sandbox_id` the constructor creates one. The end of a `with` block deletes it, even if it existed before.
    Further keyword arguments are in `cloud_config`.
    """

    def __init__(
        self,
        sandbox_id: str | None = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str = AGENTBAY,
        **kwargs: Any,
    ) -> None:
        """Create a sandbox, or attach to the one with this id.

        Raises:
            RuntimeError: The cloud created none; its reason is the cause.
        """
        self.cloud_config = kwargs
        self.base_url = base_url
        self.bearer_token = bearer_token
        self.embed_mode = False
        self.manager_api = None
        self.twin: Any = _NoMesh(self._get_cloud_provider_name())
        self._type = sandbox_type
        self.cloud_client = self._initialize_cloud_client()
        self._sandbox_id = sandbox_id or self._create_cloud_sandbox()
        if self._sandbox_id is None:
            raise RuntimeError(NOT_CREATED)

    @abstractmethod
    def _initialize_cloud_client(self) -> Any:
        """Return the client of the cloud's API, which is kept as `cloud_client`."""

    @abstractmethod
    def _create_cloud_sandbox(self) -> str | None:
        """Create a sandbox and return its id, None where the cloud creates none."""

    @abstractmethod
    def _delete_cloud_sandbox(self, sandbox_id: str) -> bool:
        """Delete a sandbox and return whether it is gone."""

    @abstractmethod
    def _call_cloud_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Run a tool and return its result in the cloud's own shape."""

    @abstractmethod
    def _get_cloud_provider_name(self) -> str:
        """Return the cloud's name."""

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id, as the cloud has it."""
        return str(self._sandbox_id)

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type."""
        return self._type

    def start(self) -> Self:
        """Return itself: the constructor created the sandbox."""
        return self

    def close(self) -> None:
        """Delete the sandbox. A failure is logged with its reason: what is billed goes on until it is deleted."""
        try:
            deleted = self._delete_cloud_sandbox(self.sandbox_id)
        except Exception as error:  # hooks of other programs; the end of a block must not hide its error
            _log.warning("sandbox %s is not deleted: %s", self.sandbox_id, error)
            return
        if not deleted:
            _log.warning("sandbox %s is not deleted: delete it at %s", self.sandbox_id, self._get_cloud_provider_name())

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, on_event: Any = None) -> Any:
        """Run a tool and return its result in the cloud's own shape; nothing is streamed to `on_event`."""
        del on_event
        return self._call_cloud_tool(name, dict(arguments or {}))

    def get_info(self) -> dict[str, Any]:
        """Return the sandbox's id, type and cloud."""
        return cloud_info(self.sandbox_id, self._type, self._get_cloud_provider_name())

    def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Return no tools, unless the class knows some."""
        return {"tools": [], "tool_type": tool_type, "sandbox_id": self.sandbox_id}

    def add_mcp_servers(  # type: ignore[override]  # as the old class has it
        self, server_configs: Mapping[str, Any], overwrite: bool = False
    ) -> NoReturn:
        """Refuse: a cloud starts no servers of its callers.

        Raises:
            CapabilityMissing: Always.
        """
        del server_configs, overwrite
        raise no_mcp_servers(self._get_cloud_provider_name())


class AsyncCloudSandbox(ABC):
    """A CloudSandbox for an event loop: `start`, or the start of an `async with` block, creates the sandbox."""

    def __init__(
        self,
        sandbox_id: str | None = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str = AGENTBAY,
        **kwargs: Any,
    ) -> None:
        """Configure the sandbox; nothing is created before `start`."""
        self.cloud_config = kwargs
        self.base_url = base_url
        self.bearer_token = bearer_token
        self.sandbox_type = sandbox_type
        self.cloud_client = self._initialize_cloud_client()
        self._sandbox_id = sandbox_id

    @abstractmethod
    def _initialize_cloud_client(self) -> Any:
        """Return the client of the cloud's API, which is kept as `cloud_client`."""

    @abstractmethod
    async def _create_cloud_sandbox(self) -> str | None:
        """Create a sandbox and return its id, None where the cloud creates none."""

    @abstractmethod
    async def _delete_cloud_sandbox(self, sandbox_id: str) -> bool:
        """Delete a sandbox and return whether it is gone."""

    @abstractmethod
    async def _call_cloud_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Run a tool and return its result in the cloud's own shape."""

    @abstractmethod
    def _get_cloud_provider_name(self) -> str:
        """Return the cloud's name."""

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id, as the cloud has it; empty before `start`."""
        return self._sandbox_id or ""

    async def start(self) -> Self:
        """Create the sandbox unless there is one.

        Raises:
            RuntimeError: The cloud created none; its reason is the cause.
        """
        self._sandbox_id = self._sandbox_id or await self._create_cloud_sandbox()
        if self._sandbox_id is None:
            raise RuntimeError(NOT_CREATED)
        return self

    async def close(self) -> None:
        """Delete the sandbox. A failure is logged with its reason: what is billed goes on until it is deleted."""
        if self._sandbox_id is None:
            return
        try:
            deleted = await self._delete_cloud_sandbox(self._sandbox_id)
        except Exception as error:  # hooks of other programs; the end of a block must not hide its error
            _log.warning("sandbox %s is not deleted: %s", self.sandbox_id, error)
            return
        if not deleted:
            _log.warning("sandbox %s is not deleted: delete it at %s", self.sandbox_id, self._get_cloud_provider_name())

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Close."""
        await self.close()

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a tool and return its result in the cloud's own shape."""
        return await self._call_cloud_tool(name, dict(arguments or {}))

    async def get_info(self) -> dict[str, Any]:
        """Return the sandbox's id, type and cloud."""
        return cloud_info(self.sandbox_id, self.sandbox_type, self._get_cloud_provider_name())

    async def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Return no tools, unless the class knows some."""
        return {"tools": [], "tool_type": tool_type, "sandbox_id": self.sandbox_id}

    async def add_mcp_servers(self, server_configs: Mapping[str, Any], overwrite: bool = False) -> NoReturn:
        """Refuse: a cloud starts no servers of its callers.

        Raises:
            CapabilityMissing: Always.
        """
        del server_configs, overwrite
        raise no_mcp_servers(self._get_cloud_provider_name())


def cloud_info(sandbox_id: str, sandbox_type: str, provider: str) -> dict[str, Any]:
    """Return what `get_info` returns."""
    return {"sandbox_id": sandbox_id, "sandbox_type": str(sandbox_type), "cloud_provider": provider}


def no_mcp_servers(provider: str) -> CapabilityMissing:
    """Return the refusal of MCP servers."""
    message = (
        f"{provider} starts no MCP servers of its callers, so none was added; "
        "add them to a sandbox of a mesh: BaseSandbox().add_mcp_servers(...)"
    )
    return CapabilityMissing(message, {"needs": "mcp_servers"})
