"""Sandboxes of AgentBay, with the old constructor, methods and results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sandmesh._client.sync import run
from sandmesh.compat.agentscope_runtime.cloud import sessions, tools
from sandmesh.compat.agentscope_runtime.cloud.client import AgentBayClient, AgentBayError
from sandmesh.compat.agentscope_runtime.cloud.sandbox import NOT_CREATED, AsyncCloudSandbox, CloudSandbox
from sandmesh.compat.agentscope_runtime.cloud.types import AGENTBAY

PROVIDER = "AgentBay"
DEFAULT_IMAGE = "linux_latest"
_ASYNC = "AsyncAgentbaySandbox"


class AsyncAgentbaySandbox(AsyncCloudSandbox):
    """A session of AgentBay for an event loop: `async with AsyncAgentbaySandbox(api_key=...) as box: ...`.

    Keyword arguments as those of AgentbaySandbox.
    """

    def __init__(
        self,
        sandbox_id: str | None = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str = AGENTBAY,
        **kwargs: Any,
    ) -> None:
        """Configure the session; `base_url` is the API's address, by default that of AGENTBAY_REGION_ID.

        Raises:
            ValueError: There is no API key, or the address is not HTTPS.
        """
        self.api_key = find_key(kwargs.pop("api_key", None), bearer_token)
        self.image_id: str = kwargs.pop("image_id", DEFAULT_IMAGE)
        self.labels: dict[str, str] = dict(kwargs.pop("labels", None) or {})
        self._endpoint = base_url
        super().__init__(sandbox_id, base_url, self.api_key, sandbox_type, **kwargs)

    def _initialize_cloud_client(self) -> AgentBayClient:
        return AgentBayClient(self.api_key, self._endpoint)

    async def _create_cloud_sandbox(self) -> str | None:
        return await create(self.cloud_client, self.image_id, self.labels)

    async def _delete_cloud_sandbox(self, sandbox_id: str) -> bool:
        return await sessions.delete_session(self.cloud_client, sandbox_id)

    async def _call_cloud_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        return await tools.call_tool(self.cloud_client, self.sandbox_id, tool_name, arguments)

    def _get_cloud_provider_name(self) -> str:
        return PROVIDER

    async def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Return the names of the tools: of "file", "command", "browser" or "system", or of all."""
        return tools.list_tools(self.sandbox_id, tool_type)

    async def get_session_info(self) -> dict[str, Any]:
        """Return what is known of the session's machine, or its error."""
        return await describe(self.cloud_client, self.sandbox_id)

    async def list_sessions(self, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the ids of all sessions of the account with these labels, or the error."""
        return await list_by_labels(self.cloud_client, labels)


class AgentbaySandbox(CloudSandbox):
    """A session of AgentBay: `with AgentbaySandbox(api_key=...) as box: ...`.

    Keyword arguments: `api_key`, else AGENTBAY_API_KEY; `image_id`, "linux_latest" by default ("code_latest" has the
    tool that runs cells); `labels`, a dict of str. Further ones are in `cloud_config`.
    """

    def __init__(
        self,
        sandbox_id: str | None = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str = AGENTBAY,
        **kwargs: Any,
    ) -> None:
        """Create a session, or attach to one; `base_url` is the API's address, by default that of AGENTBAY_REGION_ID.

        Raises:
            ValueError: There is no API key, or the address is not HTTPS.
            RuntimeError: The session was not created; the message has AgentBay's reason and the request's id.
        """
        self.api_key = find_key(kwargs.pop("api_key", None), bearer_token)
        self.image_id: str = kwargs.pop("image_id", DEFAULT_IMAGE)
        self.labels: dict[str, str] = dict(kwargs.pop("labels", None) or {})
        self._endpoint = base_url
        super().__init__(sandbox_id, base_url, self.api_key, sandbox_type, **kwargs)

    def _initialize_cloud_client(self) -> AgentBayClient:
        return AgentBayClient(self.api_key, self._endpoint)

    def _create_cloud_sandbox(self) -> str | None:
        return run(_ASYNC, create(self.cloud_client, self.image_id, self.labels))

    def _delete_cloud_sandbox(self, sandbox_id: str) -> bool:
        return run(_ASYNC, sessions.delete_session(self.cloud_client, sandbox_id))

    def _call_cloud_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        return run(_ASYNC, tools.call_tool(self.cloud_client, self.sandbox_id, tool_name, arguments))

    def _get_cloud_provider_name(self) -> str:
        return PROVIDER

    def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Return the names of the tools: of "file", "command", "browser" or "system", or of all."""
        return tools.list_tools(self.sandbox_id, tool_type)

    def get_session_info(self) -> dict[str, Any]:
        """Return what is known of the session's machine, or its error."""
        return run(_ASYNC, describe(self.cloud_client, self.sandbox_id))

    def list_sessions(self, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the ids of all sessions of the account with these labels, or the error."""
        return run(_ASYNC, list_by_labels(self.cloud_client, labels))


def find_key(api_key: str | None, bearer_token: str | None) -> str:
    """Return the API key of the argument, of AGENTBAY_API_KEY or of the old argument.

    Raises:
        ValueError: There is none.
    """
    found = api_key or os.environ.get("AGENTBAY_API_KEY") or bearer_token
    if not found:
        raise ValueError("AgentBay API key is required: pass api_key, or set AGENTBAY_API_KEY in the environment")
    return found


async def create(client: AgentBayClient, image_id: str, labels: Mapping[str, str]) -> str:
    """Create a session and return its id.

    Raises:
        RuntimeError: AgentBay created none; the message has its reason.
    """
    try:
        return await sessions.create_session(client, image_id, labels)
    except AgentBayError as error:
        raise RuntimeError(f"{NOT_CREATED} AgentBay answered: {error}") from error


async def describe(client: AgentBayClient, session_id: str) -> dict[str, Any]:
    """Return what is known of a session's machine, or its error."""
    try:
        return await sessions.describe_session(client, session_id)
    except AgentBayError as error:
        return {"error": str(error)}


async def list_by_labels(client: AgentBayClient, labels: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the ids of all sessions of the account with these labels, or the error."""
    try:
        return await sessions.list_sessions(client, dict(labels or {}))
    except AgentBayError as error:
        return {"success": False, "error": str(error)}
