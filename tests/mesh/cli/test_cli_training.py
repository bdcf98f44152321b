"""Commands on training environments, on one mesh for all tests of this file."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.mesh.commands import Commands, running_mesh

pytestmark = pytest.mark.timeout(300)

AGENT = """
import json, sys
for line in sys.stdin:
    state = json.loads(line)
    if state.get("is_terminated"):
        break
    print(json.dumps({"action": int(state["info"]["observation"][2] > 0)}), flush=True)
"""


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """Write a program that balances the pole, and return its command line."""
    (tmp_path / "agent.py").write_text(AGENT)
    return f"{sys.executable} {tmp_path / 'agent.py'}"


def test_tasks_are_listed_and_episodes_of_a_program_are_scored(sandmesh: Commands, agent: str) -> None:
    assert sandmesh.run("training", "ls", "gym:CartPole-v1").out.splitlines()[:2] == ["0", "1"]
    assert sandmesh.run("training", "ls", "-o", "json", "--split", "test", "gym:CartPole-v1").json[0] == "1000000"
    ended = sandmesh.run("training", "run", "-o", "json", "--agent", agent, "--tasks", "3", "gym:CartPole-v1").json
    assert [one["task"] for one in ended] == ["0", "1", "2"]
    for one in ended:
        assert one["steps"] == one["reward"] == one["score"] > 9
        assert (one["fault"], one["error"]) == ("", "")
    heading, row = sandmesh.run("training", "run", "--agent", agent, "--tasks", "1", "gym:CartPole-v1").out.splitlines()
    assert heading.split() == ["TASK", "STEPS", "REWARD", "SCORE", "FAULT", "ERROR"]
    assert row.split()[0] == "0"


@pytest.mark.parametrize("program", ["true", "echo no", "echo 17"])
def test_a_program_that_does_not_act_fails_by_its_own_fault(sandmesh: Commands, program: str) -> None:
    done = sandmesh.run(
        "training", "run", "-o", "json", "--agent", program, "--tasks", "1", "gym:CartPole-v1", ok=False
    )
    [one] = done.json
    assert (one["fault"], one["steps"]) == ("task", 0)
    assert one["error"]


def test_an_unknown_environment_says_which_there_are(sandmesh: Commands) -> None:
    done = sandmesh.run("training", "ls", "zork", ok=False)
    assert "no environment 'zork'; the sandbox has: gym" in done.err
