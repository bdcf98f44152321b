"""The commands of AgentScope Runtime's sandbox module, with its options, as its documentation writes them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import aiohttp
import pytest
from mcp import Client, StdioServerParameters

from sandmesh import BaseSandboxAsync
from sandmesh.errors import Unauthenticated
from sandmesh.mesh import MeshAsync
from sandmeshd.cli.agentscope.server import DEFAULTS
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.environments import environment_of
from tests.extras import environment_with
from tests.mesh.mcp.mcp_world import text_of
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOKEN, NAME = "your-secret-token", "runtime-sandbox-"
SCRIPTS: dict[str, str] = {name: one for name, one in PROJECT["scripts"].items() if name.startswith(NAME)}
EXTENSION = ROOT / "tests" / "mesh" / "sandboxes" / "template_classes.py"


def command(name: str, *arguments: str) -> list[str]:
    """Return what the script of a name runs, for an interpreter."""
    module, _, function = SCRIPTS[name].partition(":")
    return ["-c", f"from {module} import {function}; {function}()", *arguments]


CUSTOM = """
import os
from typing import Optional

from agentscope_runtime.sandbox.utils import build_image_uri
from agentscope_runtime.sandbox.registry import SandboxRegistry
from agentscope_runtime.sandbox.enums import SandboxType
from agentscope_runtime.sandbox.box.sandbox import Sandbox

SANDBOX_TYPE = "my_custom_sandbox"


@SandboxRegistry.register(
    build_image_uri(f"runtime-sandbox-{SANDBOX_TYPE}"),
    sandbox_type=SANDBOX_TYPE,
    security_level="medium",
    timeout=60,
    description="my sandbox",
    environment={"TAVILY_API_KEY": os.getenv("TAVILY_API_KEY", "")},
)
class MyCustomSandbox(Sandbox):
    def __init__(
        self,
        sandbox_id: Optional[str] = None,
        timeout: int = 3000,
        base_url: Optional[str] = None,
        bearer_token: Optional[str] = None,
    ):
        super().__init__(sandbox_id, timeout, base_url, bearer_token, SandboxType(SANDBOX_TYPE))
"""
"""An extension as that documentation writes one."""

CLIENT = """
import sys
from agentscope_runtime.sandbox import BaseSandbox
from agentscope_runtime.sandbox.manager import SandboxManager

with BaseSandbox(base_url=sys.argv[1]) as box:
    print(box.run_ipython_cell("print(6 * 7)")["content"][0]["text"].strip())
manager = SandboxManager(base_url=sys.argv[1])
one = manager.create_from_pool("base", meta={"session_ctx_id": "mine"})
print(manager.create_from_pool("base", meta={"session_ctx_id": "mine"}) == one, manager.list_session_keys())
manager.cleanup()
"""


@contextmanager
def serving(tmp_path: Path, extension: Path, *lines: str) -> Generator[str]:
    """Run `runtime-sandbox-server` with a file of settings and an extension; yield its address."""
    port, settings = free_port(), MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    config = tmp_path / "custom.env"
    config.write_text("\n".join([f"HOST=127.0.0.1\nPORT={port}", *lines]))
    options = ["--config", str(config), "--log-level", "CRITICAL", "--extension", str(extension)]
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


@pytest.fixture
def server(tmp_path: Path) -> Generator[str]:
    """Run it with a token."""
    with serving(tmp_path, EXTENSION, f"BEARER_TOKEN={TOKEN}") as address:
        yield address


async def test_the_published_package_and_grpc_reach_the_server_at_its_one_address(tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, "agentscope-runtime==1.1.6.post2")
    (extension := tmp_path / "custom_sandbox.py").write_text(CUSTOM)
    with serving(tmp_path, extension) as address:
        process = await asyncio.create_subprocess_exec(str(python), "-c", CLIENT, address, stdout=subprocess.PIPE)
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert out.decode().splitlines() == ["42", "True ['mine']"]
        async with MeshAsync(address) as mesh:
            assert "my_custom_sandbox" in {template.name for template in await mesh.templates.list()}
        async with BaseSandboxAsync(base_url=address) as box:
            assert (await box.run_ipython_cell("6 * 7")).text == "42"
            await box.fs.write("large", data := bytes(range(256)) * 40_000)
            assert await box.fs.read("large", "bytes") == data
        async with aiohttp.ClientSession() as http:
            for headers in ({"Origin": "http://page.example"}, {"Host": "page.example"}, {"Sec-Fetch-Site": "none"}):
                async with http.post(f"{address}/list_session_keys", json={}, headers=headers) as response:
                    assert response.status == 401
            for body in (b"{", b"PRI * HTTP/1.1"):
                async with http.post(f"{address}/list_session_keys", data=body) as response:
                    assert response.status == 400
            async with http.get(f"{address}/health") as response:
                assert (await response.json())["status"] == "healthy"


async def test_with_a_token_the_server_asks_every_client_for_it(server: str) -> None:
    async with aiohttp.ClientSession() as http:
        for token, status in (("", 401), ("wrong", 401), (TOKEN, 200)):
            headers = {"Authorization": f"Bearer {token}"}
            async with http.post(f"{server}/list_session_keys", json={}, headers=headers) as response:
                assert response.status == status
    with pytest.raises(Unauthenticated):
        async with MeshAsync(server) as mesh:
            await mesh.templates.list()


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
        (("my_custom_sandbox", "--extension", "custom_sandbox.py"), 1, "runtime-sandbox-my_custom_sandbox"),
        (("own", "--dockerfile_path", "nowhere/Dockerfile"), 2, "there is no Dockerfile at nowhere/Dockerfile"),
        (("base", "--dockerfile_path", __file__), 2, "another name in lower-case letters"),
    ],
)
def test_the_builder_builds_base_or_the_named_type_and_refuses_what_is_no_image_of_the_users(
    options: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "custom_sandbox.py").write_text(CUSTOM)
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    arguments = [sys.executable, *command("runtime-sandbox-builder", *options)]
    environment = {**os.environ, "SANDMESH_MESH_ID": settings.mesh_id}
    done = subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    remove(settings.paths)
    assert message in done.stderr
    assert done.returncode == code
