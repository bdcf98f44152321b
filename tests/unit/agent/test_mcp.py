"""MCP servers as the agent has them: those of a template, and a client process that breaks its protocol."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.agent.v1 import agent_pb2 as pb
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import ToolNotFound
from sandmesh.shared.frames import FrameBuffer, FrameTooLarge, pack, prefix
from sandmeshd.agent.mcp.client import protocol
from sandmeshd.agent.mcp.client.tool_list import ToolListing
from sandmeshd.agent.mcp.manager.client_process import parse_listing
from sandmeshd.drivers.node.agent_config import AGENT, MCP

from .client import Client
from .sandbox import Ground, talking

SERVER = Path(__file__).parents[2] / "mesh" / "mcp" / "mcp_program.py"
SHIPPED = {
    "one": {"command": "python", "args": ["server.py"]},
    "two": {"command": "python", "args": ["server.py", "mute"], "startup_timeout": 0.5},
}


def shipping(**servers: Any) -> dict[str, Any]:
    """Return the configuration of an agent whose template has servers."""
    config = b64encode(json.dumps({"mcpServers": servers}).encode()).decode()
    return {"mcp_libraries": [AGENT, MCP], "mcp_config": config}


async def listed(client: Client, group: str = "") -> list[call_pb2.Tool]:
    """Ask for the tools."""
    answer = await client.ask(list_tools=pb.ListTools(group=group))
    return list(call_pb2.ListToolsResponse.FromString(answer.tools).tools)


async def test_the_first_listing_has_the_tools_of_the_templates_servers(ground: Ground) -> None:
    async with talking(ground, **shipping(**SHIPPED)) as (sandbox, client):
        shutil.copy(SERVER, sandbox.workspace / "server.py")
        found = [tool.name for tool in await listed(client) if tool.group == "one"]
        assert found == ["cancelled", "die", "echo", "fail", "grow", "hang", "image", "refuse"]
        result = (await client.start("list_mcp_servers").end()).result
        servers = json.loads(result.structured_json)["servers"]
        assert [(server["name"], server["state"]) for server in servers] == [("one", "READY"), ("two", "FAILED")]


@pytest.mark.parametrize("name", ["echo", "one.echo"])
async def test_a_call_starts_the_templates_server_that_it_means(ground: Ground, name: str) -> None:
    async with talking(ground, **shipping(one=SHIPPED["one"])) as (sandbox, client):
        shutil.copy(SERVER, sandbox.workspace / "server.py")
        ended = await client.start(name, b'{"text": "hi"}').end()
        assert [json.loads(block)["text"] for block in ended.blocks] == ["hi"]
        await listed(client)
        with pytest.raises(ToolNotFound):
            await client.start("no_such_tool").end()


def test_frames_come_whole_however_they_are_cut() -> None:
    frames: list[tuple[dict[str, Any], bytes]] = [
        ({"up": True}, b""),
        ({"call": 1, "block": True}, b"\x00" * 5000),
        ({"session": 2}, b"x"),
    ]
    data = b"".join(protocol.pack(head, body) for head, body in frames)
    for size in (1, 7, len(data)):
        buffer = FrameBuffer(protocol.MAX_MESSAGE)
        messages = [message for at in range(0, len(data), size) for message in buffer.feed(data[at : at + size])]
        assert [protocol.unpack(message) for message in messages] == frames


@pytest.mark.parametrize("control", ["\x1b[2J", "\n", "\x9b", "\u202e"])
def test_a_tool_with_control_characters_in_its_name_is_refused(control: str) -> None:
    listing = ToolListing()
    hostile: dict[str, Any] = {"name": f"a{control}b", "inputSchema": {}}
    listing.take([hostile, {**hostile, "name": "fine \u00fc"}])
    sent = json.loads(listing.encoded())
    assert [tool["name"] for tool in sent["tools"]] == ["fine \u00fc"]
    assert "control characters" in sent["problems"][0]
    assert control not in sent["problems"][0]
    # The process that speaks MCP may be someone else's by then.
    forged = json.dumps({"tools": [hostile], "problems": []}).encode()
    assert parse_listing(forged) == ([], [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        prefix(3) + b"{}",
        pack(b"{" + b" " * protocol.MAX_HEAD + b"}"),
        pack(b"nope"),
        pack(b"[]"),
        pack(b"[" * 100_000),
    ],
    ids=["empty", "no length", "a cut head", "a long head", "no JSON", "no object", "a deep one"],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(protocol.InvalidMessage):
        protocol.unpack(data)


def test_a_long_message_is_refused_before_it_has_come() -> None:
    with pytest.raises(FrameTooLarge):
        list(FrameBuffer(protocol.MAX_MESSAGE).feed(prefix(protocol.MAX_MESSAGE + 1)))
