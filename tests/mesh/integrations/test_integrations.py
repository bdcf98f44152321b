"""Adapters for other frameworks, with the real package of each in an environment of its own."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from sandmesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.environments import environment_of, with_sdk

INSPECT = ("inspect-ai==0.3.285", "pytest==9.2.0", "pytest-asyncio==1.5.0")

# Inspect's own list of what a provider must do, on a fresh sandbox each.
CHECKS = """
import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403


@pytest.fixture
async def sandbox_env():
    provider = registry_find_sandboxenv("sandmesh")
    made = await provider.sample_init("checks", None, {})
    yield made["default"]
    await provider.sample_cleanup("checks", None, made, False)
"""

# The one that a sandbox whose programs run as one ordinary user cannot pass: it adds a user, as root.
EXPECTED_TO_FAIL = {"test_exec_as_user"}

TASK = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import sandbox


@solver
def write():
    # Not a model: the package's own counts tokens with a table that it downloads.
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await sandbox().write_file("answer/it.txt", state.input_text)
        return state
    return solve


@scorer(metrics=[accuracy()])
def written():
    async def score(state: TaskState, target: Target) -> Score:
        done = await sandbox().exec(["python3", "-c", "print(open('answer/it.txt').read()[::-1])"])
        return Score(value=1 if done.success and done.stdout.strip() == target.text else 0, explanation=done.stdout)
    return score


samples = [Sample(input="stressed", target="desserts") for _ in range(3)]
task = Task(dataset=samples, solver=write(), scorer=written(), sandbox="sandmesh")
[log] = eval(task, model="mockllm/model", display="none")
assert log.status == "success", log.error
assert log.results.scores[0].metrics["accuracy"].value == 1, log.results
print("explained:", log.samples[0].scores["written"].explanation.strip())
"""


MINI_SWE_AGENT = ("mini-swe-agent==2.4.6",)

AGENT = """
import json, sys
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

name = "sandmesh.integrations.mini_swe_agent.SandmeshEnvironment"
environment = get_environment({"environment_class": name, "timeout": 3, "env": {"COLOUR": "blue"}})
commands = [
    "for n in 1 2 3; do printf 'out\\n'; printf 'err\\n' >&2; done; echo $COLOUR; exit 3",
    "cd /tmp && echo kept > /workspace/note.txt",
    "cat note.txt; pwd",
    "echo before; sleep 60",
    "no-such-program",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat note.txt",
]
outputs = [make_output("Next.", [{"command": command}]) for command in commands]
model = DeterministicModel(outputs=outputs, cost_per_call=0)
agent = DefaultAgent(
    model, environment, system_template="You are on {{system}}, {{cwd}}.", instance_template="{{task}}", cost_limit=0
)
ended = agent.run("Write a note.")
assert ended["exit_status"] == "Submitted" and ended["submission"] == "kept\\n", ended
seen = [message["content"] for message in agent.messages if message["role"] == "user"][1:]
assert "You are on Linux, /workspace." == agent.messages[0]["content"], agent.messages[0]
assert "<returncode>3</returncode>\\n<output>\\n" + "out\\nerr\\n" * 3 + "blue\\n" in seen[0], seen[0]
assert "kept\\n/workspace\\n" in seen[2], seen[2]
assert "<returncode>-1</returncode>" in seen[3] and "before" in seen[3] and "An error occurred" in seen[3], seen[3]
assert "<returncode>127</returncode>" in seen[4], seen[4]
saved = agent.save(None)
assert saved["info"]["config"]["environment_type"] == name, saved["info"]
assert "bearer_token" not in json.dumps(saved)
environment.cleanup()
environment.cleanup()
print("submitted:", ended["submission"])
"""


async def run_there(python: Path, folder: Path, mesh: Mesh, *arguments: str, **more: str) -> tuple[int, str]:
    """Run the environment's Python with this clone's SDK, on the mesh; return the exit code and the output."""
    variables = with_sdk(folder, SANDMESH_ADDRESS=mesh.addresses[0], HOME=str(folder), **more)
    process = await asyncio.create_subprocess_exec(
        str(python), *arguments, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


@pytest.mark.timeout(1200)
async def test_inspects_own_checks_of_a_provider_pass_but_for_other_users(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, *INSPECT)
    (tmp_path / "test_checks.py").write_text(CHECKS)
    options = ("-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-rf", "--tb=short")
    code, output = await run_there(python, tmp_path, mesh, "-m", "pytest", *options, "test_checks.py")
    failed = {line.split("::")[1].split()[0] for line in output.splitlines() if line.startswith("FAILED ")}
    assert failed == EXPECTED_TO_FAIL, output
    assert f"{len(EXPECTED_TO_FAIL)} failed, 43 passed" in output, output
    assert code == 1
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []


@pytest.mark.timeout(600)
async def test_an_evaluation_of_inspect_scores_in_sandboxes(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, *INSPECT)
    (tmp_path / "task.py").write_text(TASK)
    code, output = await run_there(python, tmp_path, mesh, "task.py")
    assert code == 0, output
    assert "explained: desserts" in output
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []


@pytest.mark.timeout(900)
async def test_an_agent_of_mini_swe_agent_works_in_a_sandbox(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, *MINI_SWE_AGENT)
    (tmp_path / "agent.py").write_text(AGENT)
    code, output = await run_there(python, tmp_path, mesh, "agent.py")
    assert code == 0, output
    assert "submitted: kept" in output
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []
