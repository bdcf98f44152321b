"""Sandboxes in a cloud: AgentBay's against a server that speaks its API, compared with the vendor's own package."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from sandmesh import Sandbox
from sandmesh.compat.agentscope_runtime import install, uninstall
from sandmesh.compat.agentscope_runtime.cloud import (
    AgentbaySandbox,
    AsyncAgentbaySandbox,
    AsyncCloudSandbox,
    CloudSandbox,
)
from sandmesh.errors import CapabilityMissing
from tests.environments import environment_of

from .agentbay_world import KEY, AgentBayWorld, agentbay

# What the old class called of the vendor's package, a session fetched before each.
VENDOR = """
import sys
from agentbay import AgentBay, Config, CreateSessionParams

client = AgentBay(api_key="akm-test", cfg=Config(endpoint=sys.argv[1]))
params = CreateSessionParams(image_id="linux_latest", labels={"team": "résumé"})
name = client.create(params).session.session_id
get = lambda: client.get(name).session
assert get().command.execute_command("echo hi").output == "hi\\n"
assert get().code.run_code("print(1)", "python").success
assert get().file_system.write_file("a.txt", "héllo" * 20000).success
assert get().file_system.read_file("a.txt", format="bytes").content.decode() == "héllo" * 20000
assert get().file_system.write_file("s.txt", "héllo").success
assert get().file_system.read_file("s.txt").content == "héllo"
assert get().file_system.delete_file("s.txt").success
assert [one.name for one in get().file_system.list_directory(".").entries] == ["a.txt"]
assert get().file_system.create_directory("d").success
assert get().file_system.move_file("a.txt", "d/b.txt").success
assert get().file_system.delete_file("d/b.txt").success
assert get().computer.screenshot().data.endswith(".png")
assert get().info().success
assert client.list(labels={"team": "résumé"}).total_count == 1
assert client.delete(get()).success
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[AgentBayWorld]:
    for name in [name for name in os.environ if name.startswith("AGENTBAY_")]:
        monkeypatch.delenv(name)
    with agentbay(tmp_path) as made:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.authority))
        yield made


def box(world: AgentBayWorld, **options: Any) -> AgentbaySandbox:
    return AgentbaySandbox(base_url=world.address, api_key=KEY, **options)


def ran(world: AgentBayWorld, name: str, **arguments: Any) -> Any:
    with box(world) as made:
        return made.call_tool(name, arguments)


def test_each_tool_has_its_old_result(world: AgentBayWorld) -> None:
    done = {"success": True, "error": None}
    with box(world, labels={"team": "a"}) as made:
        assert isinstance(made, Sandbox)
        assert made.call_tool("run_shell_command", {"command": "echo hi; echo no >&2; exit 3"}) == {
            "success": False, "output": "hi\nno\n", "error": "no\n", "exit_code": 3,
        }  # fmt: skip
        assert made.call_tool("run_shell_command", {"command": "echo hi"})["exit_code"] == 0
        assert made.call_tool("run_ipython_cell", {"code": "print(6*7)"}) == {**done, "output": "42\n"}
        failed = made.call_tool("run_ipython_cell", {"code": "1/0"})
        assert (failed["success"], failed["error"]) == (False, "ZeroDivisionError: division by zero")
        text = "héllo" * 20000
        assert made.call_tool("write_file", {"path": "a.txt", "content": text}) == done
        assert made.call_tool("read_file", {"path": "a.txt"}) == {**done, "content": text}
        assert made.call_tool("create_directory", {"path": "d"}) == done
        listed = [{"isDirectory": False, "name": "a.txt"}, {"isDirectory": True, "name": "d"}]
        assert made.call_tool("list_directory") == {**done, "files": listed}
        assert made.call_tool("move_file", {"source": "a.txt", "destination": "d/b.txt"}) == done
        assert made.call_tool("delete_file", {"path": "d/b.txt"}) == done
        shot = {**done, "screenshot_url": "https://oss/session-1.png"}
        assert made.call_tool("screenshot") == shot
        assert made.call_tool("browser_navigate", {"url": "https://example.com"}) == done
        assert made.call_tool("get_metrics") == {"success": True, "result": '{"cpu": 1}'}


def test_what_fails_is_a_result_with_its_reason(world: AgentBayWorld) -> None:
    gone = ran(world, "read_file", path="none.txt")
    assert gone == {"success": False, "content": "", "error": "No such file or directory: none.txt"}
    assert "is not a file" in ran(world, "read_file", path=".")["error"]
    missing = ran(world, "move_file", source="a")
    assert missing["error"] == "the argument 'destination' is missing"
    assert missing["tool_name"] == "move_file"
    assert missing["arguments"] == {"source": "a"}
    assert "no tool that takes a selector" in ran(world, "browser_click", selector="#a")["error"]
    assert ran(world, "teleport")["error"] == "Error calling tool 'teleport': tool teleport is unknown"
    world.linked = True
    assert ran(world, "teleport")["error"] == "Tool 'teleport' not found in AgentBay session"


def test_a_session_with_an_address_of_its_own_is_called_there(world: AgentBayWorld) -> None:
    world.linked = True
    text = "x" * 200_000
    with box(world) as made:
        assert made.call_tool("write_file", {"path": "a", "content": text})["success"]
        assert made.call_tool("read_file", {"path": "a"})["content"] == text
    assert world.links == ["write_file", "read_file"]
    assert "CallMcpTool" not in world.actions


def test_the_end_of_a_block_deletes_the_session_and_waits_until_it_is_gone(world: AgentBayWorld) -> None:
    with box(world) as made:
        assert made.get_info() == {
            "sandbox_id": "session-1", "sandbox_type": "agentbay", "cloud_provider": "AgentBay",
        }  # fmt: skip
        assert world.sessions["session-1"]["status"] == "RUNNING"
    assert world.sessions["session-1"]["status"] == "FINISH"
    assert world.actions[-2:] == ["DeleteSessionAsync", "GetSessionDetail"]
    with box(world, sandbox_id="session-9") as attached:
        assert "NotFound" in attached.call_tool("screenshot")["error"]
    assert world.actions[-1] == "GetSession"


def test_sessions_are_described_and_listed_over_all_pages(world: AgentBayWorld) -> None:
    boxes = [box(world, labels={"team": "a", "number": str(number)}) for number in range(12)]
    info = boxes[0].get_session_info()
    assert info == {
        "session_id": "session-1", "resource_id": "resource", "resource_url": "https://resource", "app_id": "app",
        "resource_type": "Linux", "request_id": "req-1",
    }  # fmt: skip
    listed = boxes[0].list_sessions({"team": "a"})
    assert listed["session_ids"] == [one.sandbox_id for one in boxes]
    assert (listed["success"], listed["total_count"]) == (True, 12)
    assert boxes[0].list_sessions({"number": "3"})["session_ids"] == ["session-4"]
    tools = boxes[0].list_tools()
    assert tools["total_count"] == len(tools["tools"]) == sum(map(len, tools["tools_by_type"].values()))
    assert boxes[0].list_tools("command")["tools"] == ["run_shell_command", "run_ipython_cell"]


def test_a_refused_create_has_the_reason_and_the_id_of_the_request(world: AgentBayWorld) -> None:
    with pytest.raises(RuntimeError, match=r"check your cloud API credentials.*InvalidApiKey.*req-key"):
        AgentbaySandbox(base_url=world.address, api_key="wrong")
    quota = {"Code": "QuotaExceeded", "Message": "10 sessions run", "RequestId": "req-quota"}
    world.refusals["CreateMcpSession"] = (429, quota)
    with pytest.raises(RuntimeError, match=r"\[QuotaExceeded\] 10 sessions run \(request req-quota\)"):
        box(world)
    assert world.sessions == {}


def test_a_session_that_cannot_be_deleted_is_logged(world: AgentBayWorld, caplog: pytest.LogCaptureFixture) -> None:
    refused = {"Code": "Throttling", "Message": "later", "RequestId": "req-late"}
    with box(world):
        world.refusals["DeleteSessionAsync"] = (503, refused)
    assert "session-1 is not deleted: [Throttling] later (request req-late)" in caplog.text


def test_a_certificate_that_does_not_fit_is_refused(world: AgentBayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(RuntimeError, match="CERTIFICATE_VERIFY_FAILED"):
        box(world)
    assert world.requests == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "ftp://host", "https://"])
def test_an_address_that_would_show_the_key_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be an https://"):
        AgentbaySandbox(base_url=address, api_key=KEY)


def test_a_key_is_required_and_the_argument_comes_first(world: AgentBayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="AGENTBAY_API_KEY"):
        AgentbaySandbox(base_url=world.address)
    monkeypatch.setenv("AGENTBAY_API_KEY", "from-environment")
    assert AsyncAgentbaySandbox(bearer_token=KEY).api_key == "from-environment"
    assert AsyncAgentbaySandbox(api_key=KEY).api_key == KEY
    monkeypatch.setenv("AGENTBAY_REGION_ID", "ap-southeast-1")
    assert AsyncAgentbaySandbox(api_key=KEY).cloud_client.endpoint == "agentbay.ap-southeast-1.aliyuncs.com"


def test_what_needs_a_mesh_is_refused(world: AgentBayWorld) -> None:
    with box(world) as made:
        with pytest.raises(CapabilityMissing, match="so none was added"):
            made.add_mcp_servers({"mcpServers": {}}, overwrite=True)
        with pytest.raises(CapabilityMissing, match="not in a mesh"):
            made.pause()
        with pytest.raises(CapabilityMissing, match="not in a mesh"):
            made.fs.read("a")


async def test_the_async_class_does_the_same(world: AgentBayWorld) -> None:
    async with AsyncAgentbaySandbox(base_url=world.address, api_key=KEY) as made:
        calls = [made.call_tool("run_shell_command", {"command": f"echo {number}"}) for number in range(5)]
        assert [one["output"] for one in await asyncio.gather(*calls)] == [f"{number}\n" for number in range(5)]
        assert (await made.get_info())["cloud_provider"] == "AgentBay"
        assert (await made.list_sessions())["session_ids"] == [made.sandbox_id]
        assert (await made.get_session_info())["app_id"] == "app"
        with pytest.raises(CapabilityMissing):
            await made.add_mcp_servers({})
    assert world.sessions["session-1"]["status"] == "FINISH"


class Local(CloudSandbox):
    """A cloud of one machine that its user wrote."""

    deleted: list[str]

    def _initialize_cloud_client(self) -> dict[str, Any]:
        self.deleted = []
        return self.cloud_config

    def _create_cloud_sandbox(self) -> str | None:
        created: str | None = self.cloud_client["creates"]
        return created

    def _delete_cloud_sandbox(self, sandbox_id: str) -> bool:
        self.deleted.append(sandbox_id)
        return self.cloud_client["deletes"] is True

    def _call_cloud_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        return tool_name, arguments

    def _get_cloud_provider_name(self) -> str:
        return "Local"


def test_a_cloud_of_ones_own_needs_five_methods(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="Failed to create cloud sandbox"):
        Local(creates=None, deletes=True)
    with Local(creates="one", deletes=False) as made:
        assert made.call_tool("any", {"a": 1}) == ("any", {"a": 1})
        assert made.list_tools("file") == {"tools": [], "tool_type": "file", "sandbox_id": "one"}
    assert made.deleted == ["one"]
    assert "one is not deleted: delete it at Local" in caplog.text
    with pytest.raises(TypeError, match="abstract"):
        CloudSandbox()  # type: ignore[abstract]  # that it cannot be made is what is shown
    with pytest.raises(TypeError, match="abstract"):
        AsyncCloudSandbox()  # type: ignore[abstract]  # the same


def test_programs_of_the_old_package_need_its_import_paths_alone(world: AgentBayWorld) -> None:
    install()
    try:
        program = (
            "from agentscope_runtime.sandbox.enums import SandboxType\n"
            "from agentscope_runtime.sandbox.box.cloud.cloud_sandbox import CloudSandbox\n"
            "from agentscope_runtime.sandbox.box.agentbay.agentbay_sandbox import AgentbaySandbox\n"
            "with AgentbaySandbox(sandbox_type=SandboxType.AGENTBAY, base_url=address, bearer_token=key) as made:\n"
            "    assert isinstance(made, CloudSandbox)\n"
            "    result = made.call_tool('run_shell_command', {'command': 'echo hi'})\n"
        )
        names: dict[str, Any] = {"address": world.address, "key": KEY}
        exec(program, names)  # noqa: S102 - the program is above
    finally:
        uninstall()
    assert names["result"]["output"] == "hi\n"


def test_the_import_needs_no_client_of_http() -> None:
    program = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from sandmesh.compat.agentscope_runtime.cloud import AgentbaySandbox\n"
        "AgentbaySandbox(api_key='k', base_url='127.0.0.1:1')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert "pip install 'sandmesh[agentbay]'" in done.stderr


@pytest.mark.timeout(900)
def test_the_requests_are_those_of_the_vendors_package(world: AgentBayWorld, tmp_path: Path) -> None:
    python = environment_of("wuying-agentbay-sdk==0.22.3", with_own=False)
    there = tmp_path / "vendor"
    there.mkdir()
    with agentbay(there) as theirs:
        command = [str(python), "-W", "ignore", "-c", VENDOR, theirs.address]
        variables = {**os.environ, "SSL_CERT_FILE": str(theirs.authority), "AGENTBAY_LOG_LEVEL": "ERROR"}
        done = subprocess.run(
            command, env=variables, cwd=there, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr + done.stdout
    with box(world, labels={"team": "résumé"}) as made:
        made.call_tool("run_shell_command", {"command": "echo hi"})
        made.call_tool("run_ipython_cell", {"code": "print(1)"})
        made.call_tool("write_file", {"path": "a.txt", "content": "héllo" * 20000})
        made.call_tool("read_file", {"path": "a.txt"})
        made.call_tool("write_file", {"path": "s.txt", "content": "héllo"})
        made.call_tool("read_file", {"path": "s.txt"})
        made.call_tool("delete_file", {"path": "s.txt"})
        made.call_tool("list_directory", {"path": "."})
        made.call_tool("create_directory", {"path": "d"})
        made.call_tool("move_file", {"source": "a.txt", "destination": "d/b.txt"})
        made.call_tool("delete_file", {"path": "d/b.txt"})
        made.call_tool("screenshot")
        made.get_session_info()
        made.list_sessions({"team": "résumé"})
    # A session was fetched where the vendor's own `info` and the deletion of an object need none.
    ours, vendors = world.requests, [request for request in theirs.requests if "GetSession&" not in request.target]
    assert [request for request in ours if "GetSession&" not in request.target] == vendors
    assert {request for request in ours if "GetSession&" in request.target} == {
        request for request in theirs.requests if "GetSession&" in request.target
    }
