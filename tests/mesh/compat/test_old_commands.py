"""The commands of AgentScope Runtime's sandbox module, with its options, as its documentation writes them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator
from importlib import import_module
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from sandmeshd.cli.agentscope.server import DEFAULTS
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.extras import environment_with
from tests.mesh.mcp.mcp_world import text_of
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOKEN, NAME = "your-secret-token", "runtime-sandbox-"
SCRIPTS: dict[str, str] = {name: one for name, one in PROJECT["scripts"].items() if name.startswith(NAME)}
EXTENSION = ROOT / "tests" / "mesh" / "template_classes.py"


def command(name: str, *arguments: str) -> list[str]:
    """Return what the script of a name runs, for an interpreter."""
    module, _, function = SCRIPTS[name].partition(":")
    return ["-c", f"from {module} import {function}; {function}()", *arguments]


@pytest.fixture
def server(tmp_path: Path) -> Generator[str]:
    """Run `runtime-sandbox-server` with a file of settings and an extension; yield its address."""
    port, settings = free_port(), MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    config = tmp_path / "custom.env"
    config.write_text(f"HOST=127.0.0.1\nPORT={port}\nBEARER_TOKEN={TOKEN}\n")
    options = ["--config", str(config), "--log-level", "CRITICAL", "--extension", str(EXTENSION)]
    process = subprocess.Popen(
        [sys.executable, *command("runtime-sandbox-server", *options)],
        env={**os.environ, "SANDMESH_MESH_ID": settings.mesh_id},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "The mesh is ready" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()
        remove(settings.paths)


async def test_an_mcp_clients_old_configuration_reaches_the_server_that_the_old_command_starts(server: str) -> None:
    options = ["--type=weather", f"--base_url={server}", f"--bearer_token={TOKEN}"]
    ours = ["-m", "sandmeshd.cli.user", "mcp", *options]
    for arguments in (command("runtime-sandbox-mcp", *options), ours):
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            assert "to_fahrenheit" in {tool.name for tool in (await client.list_tools()).tools}
            assert text_of(await client.call_tool("run_ipython_cell", {"code": "6 * 7"})) == "42"


def test_the_server_is_at_port_8000_unless_a_setting_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings(defaults=DEFAULTS).gateway.listen == ("127.0.0.1:8000",)
    monkeypatch.setenv("SANDMESH_PORT", "8001")
    assert read_settings(defaults=DEFAULTS).gateway.listen == ("127.0.0.1:8001",)


def test_the_server_reads_a_dotenv_in_its_working_directory(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("AUTO_CLEANUP=True\nPOOL_SIZE=many\nOPENAI_API_KEY=of-another-program\n")
    arguments = [sys.executable, *command("runtime-sandbox-server")]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "POOL_SIZE is 'many'" in done.stderr


def test_each_script_is_a_function_and_its_packages_are_those_of_the_extra() -> None:
    assert PROJECT["optional-dependencies"]["agentscope"] == ["sandmesh[local,docker]"]
    for target in SCRIPTS.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


def test_without_its_packages_each_script_names_the_extra() -> None:
    with environment_with() as python:
        for name in SCRIPTS:
            done = subprocess.run([python, *command(name)], capture_output=True, text=True, check=False)
            assert done.returncode == 2
            assert f"{name} needs the package" in done.stderr
            assert 'pip install "sandmesh[agentscope]"' in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 0, "base is ready"),
        (("weather", "--extension", str(EXTENSION)), 0, "weather is ready"),
        (("own", "--dockerfile_path", "nowhere/Dockerfile"), 2, "there is no Dockerfile at nowhere/Dockerfile"),
        (("base", "--dockerfile_path", __file__), 2, "another name in lower-case letters"),
    ],
)
def test_the_builder_builds_base_or_the_named_type_and_refuses_what_is_no_image_of_the_users(
    options: tuple[str, ...], code: int, message: str
) -> None:
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    arguments = [sys.executable, *command("runtime-sandbox-builder", *options)]
    environment = {**os.environ, "SANDMESH_MESH_ID": settings.mesh_id}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    remove(settings.paths)
    assert message in done.stderr
    assert done.returncode == code
