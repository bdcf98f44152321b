"""Programs written for AgentScope Runtime's sandboxes run here when nothing but the import is swapped."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.compat.agentscope_runtime import install, uninstall
from sandmesh.compat.agentscope_runtime.names import ABSENT, MODULES, find
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker
from tests.mesh.snippets import run

pytestmark = pytest.mark.usefixtures("at_the_mesh")

BOXES = """
from agentscope_runtime.sandbox import BaseSandbox, FilesystemSandbox

with BaseSandbox() as box:
    tools = box.list_tools()
    cell = box.run_ipython_cell(code="print('hi')")
    shell = box.run_shell_command(command="echo hello")

with FilesystemSandbox() as files:
    files.create_directory("test")
    files.write_file("test/a.txt", "one\\ntwo\\n")
    diff = files.edit_file("test/a.txt", [{"oldText": "two", "newText": "three"}], dryRun=True)
    files.edit_file("test/a.txt", edits=[{"oldText": "two", "newText": "three"}])
    read = files.read_file("test/a.txt")
    found = files.search_files("test", "a", excludePatterns=["b*"])
"""

TOOLS = """
import json
from agentscope_runtime.sandbox import BaseSandbox
from agentscope_runtime.sandbox.tools.base import run_ipython_cell, run_shell_command
from agentscope_runtime.sandbox.tools.function_tool import FunctionTool, function_tool

alone = json.loads(json.dumps(run_ipython_cell(code="print('Setup successful!')"), indent=4, ensure_ascii=False))
schema = json.dumps(run_ipython_cell.schema)

with BaseSandbox() as sandbox:
    assert run_ipython_cell.sandbox_type == sandbox.sandbox_type
    func1 = run_ipython_cell.bind(sandbox=sandbox)
    func2 = run_shell_command.bind(sandbox=sandbox)
    func1(code="repo = 'kept'")
    kept = func1(code="print(repo)")
    who = func2(command="whoami")


class MathCalculator:
    def calculate_power(self, base: int, exponent: int) -> int:
        return base**exponent


@function_tool(name="calculate_power", description="A power.")
def another(base: int, exponent: int) -> int:
    return base**exponent


power = FunctionTool(MathCalculator().calculate_power)(base=2, exponent=5)
other = another(base=2, exponent=6)
"""

SERVICE = """
import asyncio
from agentscope_runtime.engine.services.sandbox import SandboxService
from agentscope_runtime.engine.services.environment_manager import create_environment_manager


async def main():
    sandbox_service = SandboxService()
    await sandbox_service.start()
    (base,) = sandbox_service.connect(session_id="session_123", user_id="user_12345", sandbox_types=["base"])
    base.run_ipython_cell("a=1")
    (again,) = sandbox_service.connect(session_id="session_123", user_id="user_12345", sandbox_types=["base"])
    result = again.run_ipython_cell("print(a)")
    released = sandbox_service.release(session_id="session_123", user_id="user_12345")
    await sandbox_service.stop()
    async with create_environment_manager() as manager:
        (box,) = manager.connect_sandbox(session_id="other", user_id="user_12345", env_types=["base"])
        second = box.run_ipython_cell("print(2)")
        manager.release_sandbox(session_id="other", user_id="user_12345")
    return result, released, second


result, released, second = asyncio.run(main())
"""

CUSTOM = """
import os
from typing import Optional
from agentscope_runtime.sandbox.utils import build_image_uri
from agentscope_runtime.sandbox.registry import SandboxRegistry
from agentscope_runtime.sandbox.enums import SandboxType
from agentscope_runtime.sandbox.box.sandbox import Sandbox
from agentscope_runtime.sandbox.manager.sandbox_manager import SandboxManager

SANDBOXTYPE = "my_custom_sandbox"


@SandboxRegistry.register(
    build_image_uri("runtime-sandbox-base"),
    sandbox_type=SANDBOXTYPE,
    security_level="medium",
    timeout=60,
    description="my sandbox",
    environment={"TAVILY_API_KEY": os.getenv("TAVILY_API_KEY", "none")},
)
class MyCustomSandbox(Sandbox):
    def __init__(
        self,
        sandbox_id: Optional[str] = None,
        timeout: int = 3000,
        base_url: Optional[str] = None,
        bearer_token: Optional[str] = None,
    ):
        super().__init__(sandbox_id, timeout, base_url, bearer_token, SandboxType(SANDBOXTYPE))


image = SandboxRegistry.get_image_by_type(SandboxType.MY_CUSTOM_SANDBOX)
with MyCustomSandbox() as box:
    key = box.call_tool("run_shell_command", {"command": "echo $TAVILY_API_KEY"})

with SandboxManager(default_type="base") as manager:
    identity = manager.create_from_pool(sandbox_type=SANDBOXTYPE)
    status = manager.get_status(identity)
    called = manager.call_tool(identity, "run_ipython_cell", {"code": "1+1"})
    released = manager.release(identity)
"""

# As the documentation has it, but that the server's program is there already.
SERVERS = """
from agentscope_runtime.sandbox import BaseSandbox

with BaseSandbox() as sandbox:
    sandbox.fs.write("server.py", program)
    mcp_server_configs = {
        "mcpServers": {
            "well": {
                "command": "python",
                "args": [
                    "server.py",
                ],
            },
        },
    }
    sandbox.add_mcp_servers(server_configs=mcp_server_configs)
    tools = sandbox.list_tools()
    called = sandbox.call_tool(
        "echo",
        arguments={
            "text": "said again",
        },
    )
"""

REMOTE = """
import asyncio
from agentscope_runtime.sandbox import BaseSandbox
from agentscope_runtime.engine.services.sandbox import SandboxService

with BaseSandbox(
    base_url=base_url,
    bearer_token="your-bearer-token",
) as sandbox:
    result = sandbox.run_shell_command(command="echo 'Hello from remote!'")


async def main():
    sandbox_service = SandboxService(
        base_url=base_url,
        bearer_token="your-bearer-token",
    )
    await sandbox_service.start()
    sandboxes = sandbox_service.connect(
        session_id="remote_session",
        user_id="remote_user",
        sandbox_types=["base"],
    )
    base_sandbox = sandboxes[0]
    cell = base_sandbox.run_ipython_cell(code="print('hi')")
    await sandbox_service.stop()
    return cell


cell = asyncio.run(main())
"""

MANAGER = """
from agentscope_runtime.sandbox.manager import SandboxManager

with SandboxManager(default_type="base") as manager:
    identity = manager.create_from_pool(sandbox_type="base", meta={"session_ctx_id": "context"})
    same = SandboxManager().create(meta={"session_ctx_id": "context"})
    keys = manager.list_session_keys()
    mapped = manager.get_session_mapping("context")
    none = manager.get_session_mapping("another")
    alone = manager.create()
    health = [(manager.get_status(one), manager.check_health(one)) for one in (identity, alone)]
    info = manager.get_info(identity)
with SandboxManager() as manager:
    ended = [manager.check_health(one) for one in (identity, alone)]
    left = manager.list_session_keys()
"""


async def test_boxes_and_tools_as_functions(mesh: Mesh, old_paths: None) -> None:
    boxes = await asyncio.to_thread(run, BOXES)
    assert boxes["cell"]["content"][0]["text"] == "hi\n"
    assert boxes["shell"]["content"][0]["text"] == "hello\n"
    assert set(boxes["tools"]) >= {"generic"}
    assert "+three" in boxes["diff"].text
    assert boxes["read"].text == "one\nthree\n"
    assert "a.txt" in boxes["found"].text
    tools = await asyncio.to_thread(run, TOOLS)
    assert tools["alone"]["content"][0]["text"] == "Setup successful!\n"
    assert tools["alone"]["isError"] is False
    assert '"run_ipython_cell"' in tools["schema"]
    assert tools["kept"].text == "kept\n"
    assert tools["who"].exit_code == 0
    assert (tools["power"].text, tools["other"].text) == ("32", "64")


@pytest.mark.filterwarnings("ignore:this blocks the running event loop:RuntimeWarning")
async def test_services_custom_classes_and_the_manager(mesh: Mesh, old_paths: None) -> None:
    service = await asyncio.to_thread(run, SERVICE)
    assert (service["result"].text, service["released"], service["second"].text) == ("1\n", True, "2\n")
    custom = await asyncio.to_thread(run, CUSTOM)
    assert custom["image"].endswith("runtime-sandbox-base:latest")
    assert custom["key"].stdout == "none\n"
    assert (custom["status"], custom["called"].text.strip(), custom["released"]) == ("ready", "2", True)


async def test_servers_of_tools_are_added(mesh: Mesh, old_paths: None) -> None:
    program = (Path(__file__).parents[1] / "mcp" / "mcp_program.py").read_text()
    servers = await asyncio.to_thread(run, SERVERS, program=program)
    assert "echo" in servers["tools"]["well"]
    assert servers["called"]["content"][0]["text"] == "said again"
    assert servers["called"]["isError"] is False


@pytest.mark.filterwarnings("ignore:this blocks the running event loop:RuntimeWarning")
async def test_a_mesh_elsewhere_is_used_by_its_address_and_token(make_mesh: MeshMaker, old_paths: None) -> None:
    async with make_mesh(listen=("127.0.0.1:0",), bearer_token="your-bearer-token") as mesh:  # noqa: S106 - the documentation's
        (base_url,) = [f"http://{address}" for address in mesh.addresses if not address.startswith("unix:")]
        remote = await asyncio.to_thread(run, REMOTE, base_url=base_url)
    assert remote["result"].stdout == "Hello from remote!\n"
    assert remote["cell"].text == "hi\n"


async def test_the_manager_maps_sessions_and_says_how_sandboxes_are(mesh: Mesh, old_paths: None) -> None:
    manager = await asyncio.to_thread(run, MANAGER)
    assert manager["keys"] == ["context"]
    assert manager["mapped"] == [manager["identity"]] == [manager["same"]]
    assert manager["none"] == []
    assert manager["health"] == [("ready", True)] * 2
    assert manager["info"]["sandbox_type"] == "base"
    assert manager["ended"] == [False, False]
    assert manager["left"] == []


def test_what_the_manager_cannot_do_it_refuses_in_words(old_paths: None) -> None:
    manager = run("from agentscope_runtime.sandbox.manager import SandboxManager as found")["found"]()
    refused: list[dict[str, Any]] = [
        {"mount_dir": "/tmp"},
        {"meta": {"color": "red"}},
        {"meta": {"session_ctx_id": "x"}, "environment": {"A": "b"}},
    ]
    for arguments in refused:
        with pytest.raises(errors.InvalidArgument):
            manager.create(**arguments)


def test_the_old_paths_are_there_only_between_install_and_uninstall() -> None:
    with pytest.raises(ImportError):
        run("import agentscope_runtime.sandbox")
    install()
    install()
    try:
        assert run("from agentscope_runtime.sandbox import BaseSandbox as found")["found"] is not None
        with pytest.raises(ImportError, match="no counterpart"):
            run("from agentscope_runtime.sandbox import E2bSandBox")
        with pytest.raises(ModuleNotFoundError, match="no counterpart"):
            run("import agentscope_runtime.engine.deployers")
        with pytest.raises(ImportError, match="NoSuchName"):
            run("from agentscope_runtime.sandbox import NoSuchName")
    finally:
        uninstall()
    assert not [name for name in sys.modules if name.startswith("agentscope_runtime")]
    with pytest.raises(ImportError):
        run("import agentscope_runtime")


def test_a_package_of_that_name_is_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentscope_runtime", sys)
    with pytest.raises(errors.AlreadyExists, match="pip uninstall"):
        install()


def test_every_old_name_leads_somewhere() -> None:
    places = {place for names in MODULES.values() for place in names.values()}
    # What comes with the MCP servers' converter is found once that is there.
    missing = [place for place in sorted(places - {"sandmesh.tools:MCPConfigConverter"}) if find(place) is None]
    assert missing == []
    assert all(not ABSENT[name].endswith(".") for name in ABSENT)
