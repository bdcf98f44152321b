"""Workspaces of AgentScope 2 in sandboxes, with the package as it is published."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.environments import ROOT, environment_of
from tests.mesh.integrations.test_integrations import run_there

AGENTSCOPE = ("agentscope[service]==2.0.11",)


@pytest.mark.timeout(600)
async def test_a_workspace_of_agentscope_2_works_in_a_sandbox_and_is_found_again(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, *AGENTSCOPE)
    program = ROOT / "examples" / "agentscope" / "workspace.py"
    code, output = await run_there(python, tmp_path, mesh, str(program))
    assert (code, output.splitlines()[-1:]) == (0, ["every call answered"]), output
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []
