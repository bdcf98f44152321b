"""The oldest release of the `mcp` library that sandmesh accepts; all other tests run with the newest."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.mesh.mcp.mcp_world import text_of

PROGRAM = Path(__file__).with_name("mcp_program.py").read_text()
SECONDS = 240
VERSION = "from importlib.metadata import version; print(version('mcp'))"


def oldest() -> str:
    """Return the oldest release that the package's metadata accepts."""
    lowest = {
        match[1]
        for requirement in requires("sandmesh") or ()
        if (match := re.match(r"mcp[^;]*>=([0-9.]+)", requirement))
    }
    assert len(lowest) == 1
    return lowest.pop()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Install the oldest release into a directory of its own."""
    wanted = oldest()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "library")]
    for name in ("mcp", "mcp-types"):
        subprocess.run([*command, f"{name}=={wanted}.*"], check=True, timeout=SECONDS)
    return tmp_path / "library"


@pytest.mark.timeout(600)
async def test_the_oldest_release_of_mcp_that_is_accepted_works(library: Path, tmp_path: Path) -> None:
    inner = tmp_path / "servers.json"
    inner.write_text(json.dumps({"mcpServers": {"inner": {"command": "python", "args": ["-c", PROGRAM]}}}))
    environment = {**os.environ, "PYTHONPATH": str(library)}
    found = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VERSION, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert (await found.communicate())[0].decode().startswith(f"{oldest()}.")
    arguments = ["-m", "sandmeshd.cli.user", "mcp", "--mcp-config", str(inner)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with Client(server) as client:
        result = await client.call_tool("run_ipython_cell", {"code": "6 * 7"})
        assert text_of(result) == "42"
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"run_shell_command", "echo"} <= names
        assert text_of(await client.call_tool("echo", {"text": "from inside"})) == "from inside"
