"""Adapters for frameworks that train, with the real package of each in an environment of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.environments import environment_of
from tests.mesh.conftest import MeshMaker
from tests.mesh.integrations.test_integrations import run_there

# Without what they require for their servers' pages and for models.
OPENENV = ("fastapi==0.165.0", "fastmcp==4.2.3", "requests==2.34.2", "uvicorn==0.54.0", "websockets==17.4")
VERL = ("pydantic==2.14.4", "ray==2.60.0")

# The package's own `__init__` imports what trains, torch above all; its tools and schemas need nothing of it.
TOOL = """
import asyncio, importlib.util, json, sys, types

for name in ("verl", "verl.utils"):
    place = importlib.util.find_spec("verl").submodule_search_locations if name == "verl" else [verl_path + "/utils"]
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = list(place)
    verl_path = module.__path__[0] if name == "verl" else verl_path

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse
from sandmesh.integrations.verl import SandmeshTool, compute_score


async def main():
    tool = SandmeshTool({"timeout": 5})
    assert isinstance(tool, BaseTool) and tool.name == "run_code"
    one, _ = await tool.create()
    other, _ = await tool.create("mine")
    assert other == "mine"
    # A trajectory that begins once more has a fresh sandbox, and its first one ends.
    first = tool._boxes["mine"]
    await tool.create("mine")
    assert first is not tool._boxes["mine"] and not first.is_open
    response, reward, metrics = await tool.execute(one, {"code": "x = 6 * 7; print(x)"})
    assert isinstance(response, ToolResponse) and (response.text, reward, metrics) == ("42\\n", 0.0, {"fault": ""})
    response, _, metrics = await tool.execute(other, {"code": "print(x)"})
    assert "NameError" in response.text and metrics == {"fault": "task"}, (response, metrics)
    assert (await tool.execute(one, {"code": "while True: pass"}))[2] == {"fault": "limit"}
    assert (await tool.execute(one, {}))[2] == {"fault": "task"}
    assert (await tool.execute(one, {"code": "echo $((6 * 7))", "language": "bash"}))[0].text == "42\\n"
    assert await tool.calc_reward(one) == 0.0
    for each in (one, other, one):
        await tool.release(each)
    truth = json.dumps({"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]})
    answers = {
        "I add.\\n```python\\nprint(sum(map(int, input().split())))\\n```": (1.0, ""),
        "```python\\nprint(3)\\n```": (0.5, "task"),
        "```python\\nwhile True: pass\\n```": (0.0, "limit"),
        "no code": (0.0, "task"),
    }
    for answer, (score, fault) in answers.items():
        found = await compute_score("codecontests", answer, truth, timeout=2)
        assert found == {"score": score, "acc": score, "fault": fault}, (answer, found)
    good = "```python\\ndef double(x):\\n    return 2 * x\\n```"
    assert (await compute_score("own", good, "assert double(4) == 8"))["score"] == 1.0
    assert (await compute_score("own", good, "assert double(4) == 9"))["fault"] == "task"
    lost = await compute_score("own", good, "assert True", base_url="unix:///nowhere/mesh.sock")
    assert lost["fault"] == "infra", lost
    print("scored")


asyncio.run(main())
"""

CODING = """
import asyncio, os, threading, time
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.generic_client import GenericEnvClient
from sandmesh.integrations.openenv import CodeAction, CodeObservation, CodingEnvironment

app = create_fastapi_app(CodingEnvironment, CodeAction, CodeObservation, max_concurrent_envs=4)
server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
threading.Thread(target=server.run, daemon=True).start()
while not server.started:
    time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]


async def main():
    url = f"http://127.0.0.1:{port}"
    async with GenericEnvClient(base_url=url) as one, GenericEnvClient(base_url=url) as other:
        await one.reset(seed=7)
        await other.reset(seed=7, episode_id="mine")
        draws = [await each.step({"code": "random.random()"}) for each in (one, other)]
        assert draws[0].observation["text"] == draws[1].observation["text"] != "", draws
        assert not draws[0].observation["is_error"]
        await one.step({"code": "x = 5"})
        wrong = await other.step({"code": "print(x)"})
        assert wrong.observation["is_error"] and wrong.observation["fault"] == "task", wrong
        states = [await each.state() for each in (one, other)]
        assert states[0]["sandbox_id"] != states[1]["sandbox_id"] and states[1]["episode_id"] == "mine", states
        assert [each["step_count"] for each in states] == [2, 2], states
        await one.reset()
        again = await one.step({"code": "print(x)"})
        assert again.observation["fault"] == "task", again
    print("episodes ended")


asyncio.run(main())
server.should_exit = True
"""

SERVER = """
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    text: str


class Heard(Observation):
    text: str = ""


class Echo(Environment):
    def __init__(self):
        super().__init__()
        self.counted = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.counted = State(episode_id=episode_id)
        return Heard()

    def step(self, action, timeout_s=None, **kwargs):
        self.counted.step_count += 1
        return Heard(text=action.text[::-1], reward=1.0, done=True)

    @property
    def state(self):
        return self.counted


app = create_fastapi_app(Echo, Say, Heard)
"""

PROVIDER = """
import asyncio, sys
from openenv.core.containers.runtime import ContainerProvider
from openenv.core.generic_client import GenericEnvClient
from sandmesh.integrations.openenv import SandmeshProvider

run = "import sys; sys.path[:0] = ['/mnt/server', '/mnt/site']; import server, uvicorn; uvicorn.run(server.app)"
provider = SandmeshProvider(["python3", "-c", run])
assert isinstance(provider, ContainerProvider)
url = provider.start_container("base", env_vars={"COLOUR": "blue"})
provider.wait_for_ready(url, timeout_s=60)


async def main():
    async with GenericEnvClient(base_url=url, provider=provider) as client:
        await client.reset()
        said = await client.step({"text": "stressed"})
        assert (said.observation["text"], said.reward, said.done) == ("desserts", 1.0, True), said


asyncio.run(main())
provider.stop_container()
provider.stop_container()
broken = SandmeshProvider(["python3", "-c", "raise SystemExit(3)"])
try:
    broken.wait_for_ready(broken.start_container("base"), timeout_s=30)
except RuntimeError as error:
    assert "the server ended" in str(error), error
else:
    raise AssertionError("a server that had ended was ready")
broken.stop_container()
print("served")
"""


@pytest.fixture
def served() -> Generator[Path]:
    """Yield a folder with the server; the uid of sandboxes does not reach those of pytest."""
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server.py").write_text(SERVER)
        yield folder


async def check_nothing_left(mesh: Mesh) -> None:
    """Check that no sandbox is in use."""
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []


@pytest.mark.timeout(900)
async def test_verls_tool_and_reward_run_code_in_sandboxes(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(lambda: environment_of(*VERL, alone=["verl==0.9.1"]))
    (tmp_path / "tool.py").write_text(TOOL)
    code, output = await run_there(python, tmp_path, mesh, "tool.py")
    assert code == 0, output
    assert "scored" in output
    await check_nothing_left(mesh)


@pytest.mark.timeout(900)
async def test_episodes_of_openenvs_coding_environment_have_a_sandbox_each(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(lambda: environment_of(*OPENENV, alone=["openenv-core==0.3.0"]))
    (tmp_path / "coding.py").write_text(CODING)
    code, output = await run_there(python, tmp_path, mesh, "coding.py")
    assert code == 0, output
    assert "episodes ended" in output
    await check_nothing_left(mesh)


@pytest.mark.timeout(900)
async def test_a_server_of_openenv_is_reached_in_a_sandbox(make_mesh: MeshMaker, served: Path, tmp_path: Path) -> None:
    python = await asyncio.to_thread(lambda: environment_of(*OPENENV, alone=["openenv-core==0.3.0"]))
    site = next(python.parents[1].glob("lib/python3*/site-packages"))
    (tmp_path / "provider.py").write_text(PROVIDER)
    mounts = {str(site): "/mnt/site", str(served): "/mnt/server"}
    async with make_mesh(drivers={"SANDMESH_READONLY_MOUNTS": mounts}) as mesh:
        code, output = await run_there(python, tmp_path, mesh, "provider.py")
        assert code == 0, output
        assert "served" in output
        await check_nothing_left(mesh)
