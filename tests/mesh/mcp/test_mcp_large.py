"""What is larger than a message, or breaks off, over streamable HTTP, with the official client's own defaults."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client

from tests.mesh.conftest import run_mesh
from tests.mesh.mcp.mcp_world import ACCEPT, INITIALIZE, connected, named, post, serving, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

VERSION = "2025-11-25"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncGenerator[str]:
    """Serve MCP for a mesh of this file."""
    async with run_mesh() as mesh, serving(mesh.addresses[0]) as served:
        yield served


async def parts_of(client: Client, result: types.CallToolResult) -> list[Any]:
    """Read the resources that a result links to."""
    links = [block for block in result.content if isinstance(block, types.ResourceLink)]
    return [content for link in links for content in (await client.read_resource(link.uri)).contents]


async def test_a_result_of_three_megabytes_is_a_preview_with_links_to_all_of_it(url: str) -> None:
    async with connected(url) as client:
        made = "''.join(chr(32 + i % 90) if i % 7 else 'ü' for i in range(3_000_000))"
        result = await client.call_tool("run_ipython_cell", {"code": f"print({made}, end='')"})
        assert not result.is_error
        assert len(text_of(result)) < 20_000
        assert "3000000 characters" in text_of(result)
        parts = await parts_of(client, result)
        whole = "".join(chr(32 + i % 90) if i % 7 else "ü" for i in range(3_000_000))
        assert "".join(part.text for part in parts) == whole
        assert text_of(result).startswith(whole[:1000])


async def test_text_that_json_writes_six_times_as_long_fits_too(url: str) -> None:
    async with connected(url) as client:
        result = await client.call_tool("run_ipython_cell", {"code": "print('\\x01' * 700_000, end='')"})
        assert "".join(part.text for part in await parts_of(client, result)) == "\x01" * 700_000


async def test_images_that_are_too_large_together_come_in_parts(url: str) -> None:
    async with connected(url) as client:
        code = "import hashlib, os, IPython.display as d\n"
        code += "data = [b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(700_000) for _ in 'ab']\n"
        code += "for one in data: d.display(d.Image(one, format='png'))"
        parts = await parts_of(client, await client.call_tool("run_ipython_cell", {"code": code}))
        assert {part.mime_type for part in parts} == {"image/png"}
        image = b"".join(base64.b64decode(part.blob) for part in parts)
        shown = await client.call_tool("run_ipython_cell", {"code": "hashlib.sha256(b''.join(data)).hexdigest()"})
        assert hashlib.sha256(image).hexdigest() in text_of(shown)


async def test_small_results_and_those_of_a_client_without_a_bound_stay_whole() -> None:
    async with (
        run_mesh() as mesh,
        serving(mesh.addresses[0], {"largest_message": 0}, reply_characters=10_000_000) as url,
        Client(streamable_http_client(url, max_sse_event_size=None)) as client,
    ):
        result = await client.call_tool("run_ipython_cell", {"code": "print('x' * 3_000_000)"})
        assert len(text_of(result)) >= 3_000_000


async def test_a_file_too_large_for_a_message_is_read_in_the_parts_that_the_error_names(url: str) -> None:
    async with connected(url) as client:
        code = "open('large.bin', 'wb').write(bytes(range(256)) * 8000)"
        await client.call_tool("run_ipython_cell", {"code": code})
        with pytest.raises(MCPError, match=r"2048000 bytes.*\?offset=0&length=\d+") as caught:
            await client.read_resource("workspace:///large.bin")
        length = int(str(caught.value).split("length=")[1].split(",")[0])
        read = b""
        while len(read) < 2_048_000:
            uri = f"workspace:///large.bin?offset={len(read)}&length={length}"
            [content] = (await client.read_resource(uri)).contents
            assert isinstance(content, types.BlobResourceContents)
            read += base64.b64decode(content.blob)
        assert read == bytes(range(256)) * 8000
        with pytest.raises(MCPError, match="offset=0&length"):
            await client.read_resource("workspace:///large.bin?offset=-1")


async def test_a_result_that_is_not_kept_says_so(url: str) -> None:
    async with connected(url) as client:
        with pytest.raises(MCPError, match="kept until"):
            await client.read_resource("result:///unknown/1")


async def test_a_stream_that_breaks_off_is_resumed_by_its_last_events_id(url: str) -> None:
    params: Any = INITIALIZE["params"]
    first = await post(url, {}, {**INITIALIZE, "params": {**params, "protocolVersion": VERSION}})
    headers = {**ACCEPT, **named(first), "mcp-protocol-version": VERSION}
    await post(url, headers, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    arguments = {"command": "sleep 1; echo after all"}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    message = {**call, "params": {"name": "run_shell_command", "arguments": arguments}}
    async with httpx2.AsyncClient(timeout=60) as client:
        async with client.stream("POST", url, json=message, headers=headers) as answer:
            lines = answer.aiter_lines()
            priming: dict[str, str] = {}
            while "id" not in priming or "retry" not in priming:
                name, _, value = (await anext(lines)).partition(": ")
                priming[name] = value
        assert int(priming["retry"]) > 0
        resumed = {**headers, "Last-Event-ID": priming["id"]}
        async with client.stream("GET", url, headers=resumed) as answer:
            assert answer.status_code == 200
            data = await anext(line async for line in answer.aiter_lines() if line.startswith("data: {"))
    reply = json.loads(data.removeprefix("data: "))
    assert (reply["id"], reply["result"]["content"][0]["text"]) == (7, "after all\n")
