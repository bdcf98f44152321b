"""Programs for training and for phones, as they were for AgentScope Runtime: by its import paths, and by sandmesh's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandmesh.compat.agentscope_runtime import install, uninstall
from sandmeshd.mesh import Mesh
from tests.adb_device import HostServer, run_device
from tests.mesh.conftest import run_mesh
from tests.mesh.snippets import run

OLD = {
    "BFCLSandbox": "agentscope_runtime.sandbox.box.training_box.training_box",
    "TrainingSandbox": "agentscope_runtime.sandbox.box.training_box.training_box",
    "APPWorldSandbox": "agentscope_runtime.sandbox.box.training_box.training_box",
    "MobileSandbox": "agentscope_runtime.sandbox",
    "MobileSandboxAsync": "agentscope_runtime.sandbox",
}
NEW = dict.fromkeys(OLD, "sandmesh")

# Two instances of a task, of which one is played to its end by messages that were written before.
BFCL = """
from {BFCLSandbox} import BFCLSandbox

look = '<tool_call>\\n{{"name": "ls", "arguments": {{"a": true}}}}\\n</tool_call>'
go = '<tool_call>\\n{{"name": "cd", "arguments": {{"folder": "document"}}}}\\n</tool_call>\\n' + look
contents = (go, "Moved.", look, "Listed.", "ok", "ok", "ok")
messages = [{{"role": "assistant", "content": content}} for content in contents]
answers = []

with BFCLSandbox() as box:
    profiles = box.get_env_profile(env_type="bfcl")
    made = box.create_instance(env_type="bfcl", task_id=profiles[0], params={{"model_name": "written"}})
    other = box.create_instance(env_type="bfcl", task_id=profiles[0])
    instance = made["info"]["instance_id"]
    for message in messages:
        answer = box.step(instance_id=instance, action=message)
        answers.append((answer["is_terminated"], answer["reward"], answer.get("state", {{}})))
        if answer["is_terminated"]:
            break
    score = box.evaluate(instance, messages={{}}, params={{"sparse": True}})
    whole = box.evaluate(instance, params={{"sparse": False}})
    released = [box.release_instance(one["info"]["instance_id"]) for one in (made, other)]
"""

APPWORLD = """
from {APPWorldSandbox} import APPWorldSandbox
from {TrainingSandbox} import TrainingSandbox

with Sandbox() as box:
    profiles = box.get_env_profile(env_type="appworld", split="train")
    made = box.create_instance(env_type="appworld", task_id=profiles[0])
    instance, query = made["info"]["instance_id"], made["state"]
    action = {{"role": "assistant", "content": "```python\\nprint('hello')\\n```"}}
    result = box.step(instance_id=instance, action=action)
    score = box.evaluate(instance, messages={{}}, params={{"sparse": True}})
    released = box.release_instance(instance)
"""

MOBILE = """
import asyncio
from {MobileSandbox} import MobileSandbox
from {MobileSandboxAsync} import MobileSandboxAsync

with MobileSandbox() as box:
    tools = box.list_tools()
    size = box.mobile_get_screen_resolution()
    taps = [box.mobile_tap([500, 1000]), box.mobile_tap(x=500, y=1000)]
    swiped = box.mobile_swipe([500, 1000], [500, 200])
    typed = box.mobile_input_text("Hello from a program!")
    home = box.mobile_key_event(3)
    screenshot = box.mobile_get_screenshot()


async def main():
    async with MobileSandboxAsync() as box:
        await box.mobile_tap([500, 1000])
        await box.mobile_input_text("again")
        return await box.mobile_get_screenshot()


again = asyncio.run(main())
"""


@pytest.fixture(params=[OLD, NEW], ids=["old paths", "new paths"])
def paths(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Return where a program imports each class from."""
    found: Mapping[str, str] = request.param
    return found


async def run_at(address: str, program: str, paths: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a program on a mesh, with imports from these paths, and return its names."""
    monkeypatch.setenv("SANDMESH_ADDRESS", address)
    install()
    try:
        return await asyncio.to_thread(run, program.format(**paths))
    finally:
        uninstall()


@pytest.mark.timeout(300)
async def test_a_program_with_episodes_of_the_leaderboard_runs_with_only_its_imports_changed(
    mesh: Mesh, paths: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await run_at(mesh.addresses[0], BFCL, paths, monkeypatch)
    assert [message["role"] for message in names["made"]["state"]] == ["system", "user"]
    assert names["made"]["info"]["instance_id"] != names["other"]["info"]["instance_id"]
    first = names["answers"][0]
    assert first[:2] == (False, 0.0)
    assert "current_working_directory" in first[2][0]["content"]
    assert names["answers"][-1][0]
    assert names["score"] == 0.0
    assert names["whole"]["accuracy"] == 0.0
    assert names["released"] == [True, True]


@pytest.mark.needs("adb")
async def test_a_program_for_a_phone_runs_with_only_its_imports_changed(
    tmp_path: Path, paths: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_device() as device, HostServer(tmp_path).running() as server:
        await server.attach(device)
        async with run_mesh(adb_devices=[device.serial], adb_server=server.address) as mesh:
            names = await run_at(mesh.addresses[0], MOBILE, paths, monkeypatch)
    assert "mobile_tap" in names["tools"]["mobile"]
    assert names["size"].text == '{"width": 720, "height": 1280}'
    assert [tap.text for tap in names["taps"]] == ["Tapped at (500, 1000)"] * 2
    assert names["swiped"].text == "Swiped from (500, 1000) to (500, 200)"
    assert (names["typed"].text, names["home"].text) == ("Input text: Hello from a program!", "Sent key event: 3")
    assert names["screenshot"].images[0].startswith(b"\x89PNG")
    assert names["again"].images[0].startswith(b"\x89PNG")
    assert device.typed.endswith("again")
