"""Files of settings and programs of AgentScope Runtime for clouds: as they are, on the clouds' stand-ins."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from dotenv import dotenv_values

from sandmeshd.cli.config.environment import read_settings
from sandmeshd.mesh import open_mesh
from sandmeshd.mesh.sweep import remove
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.region import KEYS, Region
from tests.ports import free_port
from tests.unit.agent.sandbox import Ground, prepare_ground
from tests.unit.sdk.agentbay_world import KEY, agentbay

pytestmark = [pytest.mark.needs("root"), pytest.mark.usefixtures("old_paths")]

Serve = Callable[[Path, Ground], AbstractAsyncContextManager[Region]]

FILE = """
HOST=127.0.0.1
PORT={port}
CONTAINER_DEPLOYMENT={driver}
DEFAULT_SANDBOX_TYPE=base
POOL_SIZE=0
{prefix}_ACCOUNT_ID=1234567890
{prefix}_ACCESS_KEY_ID={key}
{prefix}_ACCESS_KEY_SECRET={secret}
{prefix}_REGION_ID=cn-hangzhou
{prefix}_CPU=1.0
{prefix}_MEMORY=1024
{prefix}_VPC_ID=
{prefix}_PREFIX=agentscope-sandbox
SANDMESH_{prefix}_ENDPOINT={endpoint}
"""

PROGRAM = """
from agentscope_runtime.sandbox import BaseSandbox

with BaseSandbox(base_url="http://127.0.0.1:{port}") as box:
    seen.append(box.run_ipython_cell(code="print(6 * 7)"))
    seen.append(box.run_shell_command(command="id -u"))
"""


@pytest.mark.parametrize(
    ("driver", "prefix", "stand_in"),
    [("fc", "FC", function_compute.stand_in), ("agentrun", "AGENT_RUN", agent_run.stand_in)],
)
async def test_a_file_of_settings_starts_a_mesh_on_which_a_program_runs_unchanged(
    driver: str, prefix: str, stand_in: Serve, tmp_path: Path
) -> None:
    [(key, secret)] = KEYS.items()
    port, ground = free_port(), await prepare_ground()
    async with stand_in(tmp_path, ground) as cloud:
        file = tmp_path / "old.env"
        text = FILE.format(port=port, driver=driver, prefix=prefix, key=key, secret=secret, endpoint=cloud.endpoint)
        file.write_text(text)
        settings = read_settings(file, mesh_id=f"test-{secrets.token_hex(5)}", ephemeral=True)
        seen: list[object] = []
        try:
            with trusted(tmp_path):
                async with open_mesh(settings, lambda message, fraction: None):
                    await asyncio.to_thread(exec, PROGRAM.format(port=port), {"seen": seen})
        finally:
            remove(settings.paths)
        assert "42" in str(seen[0])
        assert "1000" in str(seen[1])
        assert len(cloud.ledger) == 1
        assert cloud.living == []


AGENTBAY_FILE = """
HOST=127.0.0.1
PORT={port}
DEFAULT_SANDBOX_TYPE=base
POOL_SIZE=0
AGENTBAY_API_KEY={key}
AGENTBAY_ENDPOINT={endpoint}
"""

AGENTBAY_PROGRAM = """
import os
from agentscope_runtime.sandbox import BaseSandbox
from agentscope_runtime.sandbox.box.agentbay.agentbay_sandbox import AgentbaySandbox

with AgentbaySandbox(api_key=os.environ["AGENTBAY_API_KEY"], image_id="code_latest", labels={{"team": "a"}}) as box:
    seen.append(box.call_tool("run_ipython_cell", {{"code": "print(6 * 7)"}})["output"])
    seen.append(box.call_tool("run_shell_command", {{"command": "echo hi"}})["output"])
    seen.append(box.list_sessions(labels={{"team": "a"}})["session_ids"] == [box.sandbox_id])
with BaseSandbox(base_url="http://127.0.0.1:{port}") as box:
    seen.append(str(box.run_ipython_cell(code="print(6 * 7)")))
"""


async def test_a_file_with_agentbays_key_starts_a_mesh_and_a_program_of_both_runs_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, file, seen = free_port(), tmp_path / "old.env", list[object]()
    with agentbay(tmp_path) as world:
        file.write_text(AGENTBAY_FILE.format(port=port, key=KEY, endpoint=world.address))
        settings = read_settings(file, mesh_id=f"test-{secrets.token_hex(5)}", ephemeral=True)
        for name, value in dotenv_values(file).items():
            if name.startswith("AGENTBAY_") and value:
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("SSL_CERT_FILE", str(world.authority))
        try:
            async with open_mesh(settings, lambda message, fraction: None):
                await asyncio.to_thread(exec, AGENTBAY_PROGRAM.format(port=port), {"seen": seen})
        finally:
            remove(settings.paths)
        assert [session["status"] for session in world.sessions.values()] == ["FINISH"]
    assert seen[:3] == ["42\n", "hi\n", True]
    assert "42" in str(seen[3])
