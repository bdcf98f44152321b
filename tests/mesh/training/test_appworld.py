"""AppWorld in sandboxes: its real package, in a small world of our own in the form of its data."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import APPWorldSandbox, APPWorldSandboxAsync, errors
from sandmeshd.mesh import Mesh, MeshSettings
from sandmeshd.runtime.paths import default_state_directory
from tests.mesh.commands import Commands
from tests.mesh.compat.test_moving_over_training import APPWORLD, OLD, run_at
from tests.mesh.conftest import run_mesh
from tests.mesh.training import appworld_world
from tests.mesh.training.appworld_world import QUESTION, TASK

pytestmark = pytest.mark.timeout(600)

NO_DATA = r"does not have the data of 'appworld'.*sandmesh training prepare appworld --data PATH"
LOOK = """
passwords = {each["account_name"]: each["password"] for each in apis.supervisor.show_account_passwords()}
token = apis.simple_note.login(username="ada@example.com", password=passwords["simple_note"])["access_token"]
[note] = apis.simple_note.search_notes(access_token=token, query="Shopping")
print(apis.simple_note.show_note(access_token=token, note_id=note["note_id"])["content"])
"""
PIN = 'apis.simple_note.update_note(access_token=token, note_id=note["note_id"], pinned=True)'


@pytest.fixture(scope="module")
def state() -> Generator[Path]:
    """Give a state directory of its own, which shares what is built with those of others."""
    shared = default_state_directory() / "cache" / "environments"
    shared.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        folder = Path(name)
        for path in (folder, folder / "state", folder / "state" / "cache"):
            path.mkdir(exist_ok=True)
            path.chmod(0o711)
        (folder / "state" / "cache" / "environments").symlink_to(shared)
        yield folder / "state"


def own_directories(state: Path) -> dict[str, str]:
    """Return the variables by which commands keep and leave nothing outside of a test's folder."""
    return {"SANDMESH_STATE_DIRECTORY": str(state), "SANDMESH_RUNTIME_DIRECTORY": str(state.parent / "run")}


@pytest.fixture
def sandmesh(state: Path) -> Commands:
    """Give commands that mean this directory."""
    return Commands(MeshSettings(state_directory=state), own_directories(state))


@pytest.fixture(scope="module")
def world(state: Path) -> Generator[Path]:
    """Write the small world with the package of the template's own environment."""
    build = [sys.executable, "-m", "sandmeshd.cli.user", "build", "appworld"]
    variables = {**os.environ, **own_directories(state)}
    subprocess.run(build, env=variables, check=True, timeout=400, stdout=subprocess.DEVNULL)
    environments = default_state_directory() / "cache" / "environments"
    python = next(environments.glob("*/lib/python3*/site-packages/appworld")).parents[3] / "bin" / "python"
    with tempfile.TemporaryDirectory() as name:
        program = [str(python), "-P", appworld_world.__file__, name]
        subprocess.run(program, check=True, timeout=120, stdout=subprocess.DEVNULL)
        yield Path(name)


def said(code: str) -> dict[str, str]:
    """Return an assistant's message with code."""
    return {"role": "assistant", "content": f"Next:\n```python\n{code}\n```"}


def test_what_is_not_the_data_is_refused_with_what_is_wrong(sandmesh: Commands, tmp_path: Path) -> None:
    def refusal(path: Path, name: str = "appworld") -> str:
        done = sandmesh.run("training", "prepare", name, "--data", str(path), ok=False)
        assert done.code == 2
        return done.err

    assert "no environment takes data as 'chess': choose from appworld" in refusal(tmp_path, "chess")
    assert "is not data of AppWorld: it has no tasks, datasets, api_docs" in refusal(tmp_path)
    for part in ("datasets", "api_docs", f"tasks/{TASK}"):
        (tmp_path / "data" / part).mkdir(parents=True)
    assert "its datasets name no task" in refusal(tmp_path)
    (tmp_path / "data" / "datasets" / "train.txt").write_text(f"{TASK}\nabc1234_2\n")
    assert f"lacks 2 of 2 tasks, as {TASK}" in refusal(tmp_path)
    (tmp_path / "data" / "tasks" / "abc1234_2").mkdir()
    for name in (TASK, "abc1234_2"):
        (tmp_path / "data" / "tasks" / name / "specs.json").write_text(json.dumps({"db_version": "0.2.0"}))
    assert "is of version 0.2.0: the package appworld of this release takes 0.1.0" in refusal(tmp_path / "data")
    (tmp_path / "data" / "tasks" / TASK / "specs.json").write_text("[")
    assert "is not the description of a task" in refusal(tmp_path)


async def test_a_node_without_the_data_says_so_and_what_to_do(state: Path, sandmesh: Commands, world: Path) -> None:
    async with run_mesh(state_directory=state) as mesh:
        with pytest.raises(errors.CapabilityMissing, match=NO_DATA):
            await APPWorldSandboxAsync(base_url=mesh.addresses[0], timeout=100).start()
    findings = await asyncio.to_thread(lambda: sandmesh.run("doctor", "-o", "json", ok=False).json)
    [found] = [finding for finding in findings if finding["name"] == "data of appworld"]
    assert found["health"] == "-"
    assert "sandmesh training prepare appworld" in found["seen"]


async def test_a_task_is_solved_by_code_and_scored_by_the_packages_own_tests(
    state: Path, sandmesh: Commands, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(mesh: Mesh) -> None:
        line = sandmesh.run("training", "prepare", "appworld", "--data", str(world)).out
        assert line.startswith("appworld: version 0.1.0, 1 tasks, at ")
        shutil.rmtree(world / "data" / "datasets")  # What sandboxes see is a copy.
        [found] = [
            finding for finding in sandmesh.run("doctor", "-o", "json").json if finding["name"] == "data of appworld"
        ]
        assert found["health"] == "ok"
        assert sandmesh.run("training", "ls", "appworld", SANDMESH_ADDRESS=mesh.addresses[0]).out == f"{TASK}\n"

    async with run_mesh(state_directory=state) as mesh:
        await asyncio.to_thread(prepare, mesh)
        await asyncio.to_thread(play, mesh)
        # A program of the old documentation, where AppWorld is also what a TrainingSandbox has.
        for kind in ("APPWorldSandbox", "TrainingSandbox"):
            program = APPWORLD.replace("with Sandbox()", f"with {kind}()")
            names = await run_at(mesh.addresses[0], program, OLD, monkeypatch)
            assert (names["profiles"], names["score"], names["released"]) == ([TASK], 0.0, True)
            assert names["result"]["state"][0]["content"].strip() == "hello"
            assert not names["result"]["is_terminated"]


def play(mesh: Mesh) -> None:
    """Solve the task in one instance, and not in another."""
    with APPWorldSandbox(base_url=mesh.addresses[0], timeout=200) as box:
        assert box.get_task_ids("appworld", split="dev") == []
        assert box.get_env_profile(env_type="appworld", split="train", params={"difficulty": 2}) == []
        with pytest.raises(errors.InvalidArgument, match="no split 'test': choose from dev, train"):
            box.get_task_ids("appworld", split="test")
        with pytest.raises(errors.InvalidArgument, match=r"no task '../../secret'"):
            box.create_instance("appworld", "../../secret")
        one, other = (box.create_instance("appworld", TASK)["info"]["instance_id"] for _ in range(2))
        state = box.create_instance("appworld", TASK, "third")["state"]
        assert QUESTION in state[0]["content"]
        assert "Ada Byron (ada@example.com, 5550100)" in state[0]["content"]
        with pytest.raises(errors.InvalidArgument, match="An action is an assistant's message"):
            box.step(one, {"role": "assistant", "content": " "})
        seen = box.step(one, said(LOOK))
        assert (seen["state"][0]["content"].strip(), seen["is_terminated"], seen["reward"]) == ("7 apples", False, 0.0)
        assert "NameError" in box.step(other, said(PIN))["state"][0]["content"]
        assert box.evaluate(one)["failures"] == ["the answer is that of the note", "the note was pinned"]
        box.step(one, said(PIN))
        last = box.step(one, said("apis.supervisor.complete_task(answer=7)"))
        assert (last["is_terminated"], last["reward"]) == (True, 1.0)
        found = box.evaluate(one)
        assert (found["success"], found["completed"], found["accuracy"]) == (True, True, 1.0)
        assert box.evaluate(one, params={"sparse": True}) == 1.0
        last = box.step(other, said("apis.supervisor.complete_task(answer=8)"))
        assert (last["is_terminated"], last["reward"], box.evaluate(other)["accuracy"]) == (True, 0.0, 0.0)
        assert [box.release_instance(each) for each in (one, other, "third")] == [True] * 3
