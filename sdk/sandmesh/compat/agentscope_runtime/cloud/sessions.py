"""AgentBay's sessions: creation, deletion, what is known of them, and their tools by the vendor's names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh.compat.agentscope_runtime.cloud.client import (
    NOT_FOUND,
    AgentBay,
    AgentBayClient,
    AgentBayError,
    read_list,
    read_object,
)

DELETE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 1.0
PAGE: Final = 10


@dataclass(frozen=True)
class ToolOutput:
    """What a tool answered: its text, or the text of its failure."""

    text: str
    failed: bool = False

    @property
    def error(self) -> str | None:
        """The failure's text, None where it succeeded."""
        return (self.text or "the tool failed without a reason") if self.failed else None


@dataclass(frozen=True)
class CloudSession:
    """A session that exists, over an open API."""

    api: AgentBay
    session_id: str
    link_url: str = ""
    token: str = ""
    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The server of each tool; empty where the session does not list them."""

    @property
    def is_linked(self) -> bool:
        """Whether tools are called at the session's own address, which bounds no message."""
        return bool(self.link_url and self.token)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        """Run a tool of the vendor's.

        Raises:
            AgentBayError: The request was refused; a failure of the tool itself is an output.
        """
        server = self.servers.get(tool, "")
        if self.is_linked and server:
            call = {"args": arguments, "server": server, "tool": tool}
            return _output(await self.api.call_link(self.link_url, self.token, call))
        form = {
            "SessionId": self.session_id,
            "Name": tool,
            "Args": json.dumps(arguments, ensure_ascii=False),
            "AutoGenSession": "False",
            "Server": server,
        }
        return _output(read_object((await self.api.request("CallMcpTool", form)).get("Data")))


async def create_session(client: AgentBayClient, image_id: str, labels: Mapping[str, str]) -> str:
    """Create a session and return its id.

    Raises:
        AgentBayError: None was created.
    """
    async with client.open() as api:
        form = {"LoginRegionId": api.region}
        if labels:
            form["Labels"] = json.dumps(labels)
        if image_id:
            form["ImageId"] = image_id
        body = await api.request("CreateMcpSession", form)
        data = read_object(body.get("Data"))
        if data.get("Success") is False or not data.get("SessionId"):
            reason = str(data.get("ErrMsg") or "the response names no session")
            raise AgentBayError("NotCreated", reason, str(body.get("RequestId", "")))
        return str(data["SessionId"])


async def get_session(api: AgentBay, session_id: str) -> CloudSession:
    """Return a session that exists.

    Raises:
        AgentBayError: There is none of this id, or the request was refused.
    """
    data = read_object((await api.request("GetSession", {"SessionId": session_id})).get("Data"))
    servers = {
        str(one.get("name") or one.get("Name") or ""): str(
            one.get("server") or one.get("serverName") or one.get("Server") or ""
        )
        for one in map(read_object, read_list(data.get("ToolList")))
    }
    return CloudSession(api, session_id, str(data.get("LinkUrl") or ""), str(data.get("Token") or ""), servers)


async def delete_session(client: AgentBayClient, session_id: str) -> bool:
    """Delete a session and wait until it is gone; one that does not exist is.

    Raises:
        AgentBayError: The request was refused.
        TimeoutError: It is still there after five minutes.
    """
    async with client.open() as api:
        try:
            await get_session(api, session_id)
            await api.request("DeleteSessionAsync", {"SessionId": session_id})
            async with asyncio.timeout(DELETE_SECONDS):
                while not await _is_gone(api, session_id):  # noqa: ASYNC110 - the API has no event
                    await asyncio.sleep(POLL_SECONDS)
        except AgentBayError as error:
            if error.code != NOT_FOUND:
                raise
        return True


async def _is_gone(api: AgentBay, session_id: str) -> bool:
    body = await api.request("GetSessionDetail", {}, {"SessionId": session_id})
    return bool(read_object(body.get("Data")).get("Status") == "FINISH")


async def describe_session(client: AgentBayClient, session_id: str) -> dict[str, Any]:
    """Return what is known of a session's machine.

    Raises:
        AgentBayError: The request was refused.
    """
    async with client.open() as api:
        body = await api.request("GetMcpResource", {"SessionId": session_id})
    data = read_object(body.get("Data"))
    desktop = read_object(data.get("DesktopInfo"))
    return {
        "session_id": data.get("SessionId", ""),
        "resource_id": desktop.get("ResourceId", ""),
        "resource_url": data.get("ResourceUrl", ""),
        "app_id": desktop.get("AppId", ""),
        "resource_type": desktop.get("ResourceType", ""),
        "request_id": body.get("RequestId", ""),
    }


async def list_sessions(client: AgentBayClient, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the ids of all sessions with these labels.

    Raises:
        AgentBayError: The request was refused.
    """
    found: list[str] = []
    form = {"Labels": json.dumps(labels), "MaxResults": str(PAGE)}
    async with client.open() as api:
        while True:
            body = await api.request("ListSession", form)
            listed = map(read_object, read_list(body.get("Data")))
            found += [str(one["SessionId"]) for one in listed if one.get("SessionId")]
            if not body.get("NextToken"):
                break
            form["NextToken"] = str(body["NextToken"])
    total = int(body.get("TotalCount") or len(found))
    return {"success": True, "session_ids": found, "total_count": total, "request_id": body.get("RequestId", "")}


def _output(result: Mapping[str, Any]) -> ToolOutput:
    first: Any = (read_list(result.get("content")) or [""])[0]
    if not isinstance(first, str):
        block = read_object(first)
        first = block.get("text") or block.get("blob") or block.get("data") or ""
    return ToolOutput(str(first), bool(result.get("isError")))
