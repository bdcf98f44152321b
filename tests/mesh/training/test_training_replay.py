"""Episodes that can be repeated: seeds, clocks, recordings, and `sandmesh replay`."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sandmesh import Environment, InstanceFailed, SandboxRegistry, TrainingSandbox
from sandmesh.errors import InvalidArgument, NotFound
from tests.mesh.commands import Commands, running_mesh

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("faketime")]

Params = Mapping[str, Any]
START = "2031-05-06T07:08:09Z"
START_SECONDS = 1935817689.0


class Dice(Environment):
    """Random numbers of all kinds, the order of a set, and the time."""

    @classmethod
    def list_tasks(cls, split: str, params: Params) -> Sequence[str]:
        """Return one."""
        return ["one"]

    def __init__(self, task_id: str, params: Params) -> None:
        """Keep the parameters."""
        self._params = params

    def reset(self) -> Params:
        """Return the seed."""
        return {"state": [], "info": {"seed": self._params.get("seed")}}

    def step(self, action: Any, params: Params) -> Params:
        """Roll; or raise, or return the time."""
        if action == "raise":
            raise RuntimeError("the table fell over")
        if action == "time":
            return {"state": time.time(), "reward": 0.0, "is_terminated": False, "info": {}}
        rolled = [random.random(), float(np.random.rand()), list({f"face-{number}" for number in range(20)})]  # noqa: S311 - what is fixed here
        return {
            "state": rolled,
            "reward": 1.0,
            "is_terminated": False,
            "info": {"pid": action == "pid" and time.time_ns()},
        }

    def evaluate(self, messages: Any, params: Params) -> Any:
        """Return a random number."""
        return random.random()  # noqa: S311 - what is fixed here


@SandboxRegistry.register("runtime-sandbox-training", sandbox_type="dice", environments={"dice": Dice})
class DiceSandbox(TrainingSandbox):
    """A type with dice."""


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


def address_of(sandmesh: Commands) -> str:
    """Return the address of the mesh."""
    return f"unix://{sandmesh.settings.paths.gateway}"


def roll(box: DiceSandbox, **fixed: Any) -> list[Any]:
    """Return what an episode rolls."""
    first = box.create_instance("dice", "one", **fixed)
    instance = first["info"]["instance_id"]
    rolled = [box.step(instance)["state"], box.step(instance)["state"], box.evaluate(instance)]
    box.release_instance(instance)
    return rolled


def test_episodes_of_the_same_seed_are_equal_in_any_sandbox(sandmesh: Commands) -> None:
    with DiceSandbox(base_url=address_of(sandmesh)) as one, DiceSandbox(base_url=address_of(sandmesh)) as other:
        assert one.create_instance("dice", "one", "seeded", seed=7)["info"]["seed"] == 7
        rolls = [roll(box, seed=7) for box in (one, one, other)]
        assert rolls[0] == rolls[1] == rolls[2]
        assert roll(one, seed=8)[0][:2] != rolls[0][0][:2]
        unseeded = roll(one), roll(other)
        assert unseeded[0][0][0] != unseeded[1][0][0]
        assert unseeded[0][0][2] == unseeded[1][0][2] == rolls[0][0][2]
        with pytest.raises(InvalidArgument, match="seed"):
            one.create_instance("dice", "one", seed=-1)


def test_a_seed_fixes_a_random_task_of_gymnasium(sandmesh: Commands) -> None:
    with DiceSandbox(base_url=address_of(sandmesh)) as box:
        firsts = [box.create_instance("gym:CartPole-v1", "random", seed=seed)["state"] for seed in (7, 7, 8)]
        assert firsts[0] == firsts[1] != firsts[2]


def test_the_clock_of_an_episode_starts_where_it_was_asked_to(sandmesh: Commands) -> None:
    with DiceSandbox(base_url=address_of(sandmesh)) as box:
        for name in ("first", "second"):
            box.create_instance("dice", "one", name, {"clock_start": START})
            assert 0 <= box.step(name, "time")["state"] - START_SECONDS < 300
        box.create_instance("dice", "one", "plain")
        assert abs(box.step("plain", "time")["state"] - time.time()) < 300
        for wrong in ("noon", 12):
            with pytest.raises(InvalidArgument, match=f"clock_start={wrong!r} is not a time: write it as"):
                box.create_instance("dice", "one", params={"clock_start": wrong})


def record(sandmesh: Commands, path: Path, *actions: str, **fixed: Any) -> list[dict[str, Any]]:
    """Record an episode and return the lines of its file."""
    with DiceSandbox(base_url=address_of(sandmesh)) as box:
        box.record_episodes(path)
        instance = box.create_instance("dice", "one", **fixed)["info"]["instance_id"]
        for action in actions:
            try:
                box.step(instance, action)
            except InstanceFailed:
                continue
        box.release_instance(instance)
        box.record_episodes(None)
        box.get_task_ids("dice")
        box.create_instance("dice", "one", "not-recorded")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_recorded_episode_is_replayed_with_no_difference(sandmesh: Commands, tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    header, *calls = record(sandmesh, path, "roll", "roll", "raise", "roll", seed=3)
    assert (header["format"], header["version"], header["sandbox_type"]) == ("sandmesh-episodes", 1, "dice")
    assert [call["tool"] for call in calls] == ["create_instance", *["step"] * 4, "release_instance"]
    assert calls[3]["error"] == {"type": "InstanceFailed", "fault": "task"}
    assert calls[0]["arguments"]["instance_id"] == calls[1]["arguments"]["instance_id"]
    assert sandmesh.run("replay", str(path)).out == "calls: 6, differences: 0\n"
    with DiceSandbox(base_url=address_of(sandmesh)) as box:
        assert box.replay_episodes(path).differences == []


def test_a_replay_names_what_differs(sandmesh: Commands, tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    record(sandmesh, path, "roll", "pid", seed=3)
    done = sandmesh.run("replay", "-o", "json", str(path), ok=False)
    assert done.code == 1
    [found] = done.json["differences"]
    assert (found["call"], found["tool"], found["path"]) == (3, "step", "result.info.pid")
    assert sandmesh.run("replay", "--ignore", "result.info.pid", str(path)).out == "calls: 4, differences: 0\n"
    lines = path.read_text().replace('"reward": 1.0', '"reward": 0.5').splitlines(keepends=True)
    path.write_text("".join(lines) + '{"call": 5, "to')
    said = sandmesh.run("replay", "--ignore", "result.info", str(path), ok=False).out.splitlines()
    assert said == [
        "call 2, step: result.reward: 0.5 -> 1.0",
        "call 3, step: result.reward: 0.5 -> 1.0",
        "calls: 4, differences: 2",
    ]


def test_what_is_not_a_recording_is_refused(sandmesh: Commands, tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    with DiceSandbox(base_url=address_of(sandmesh)) as box:
        with pytest.raises(NotFound, match="cannot be read"):
            box.replay_episodes(path)
        path.write_text('{"format": "sandmesh-episodes", "version": 9}\n')
        with pytest.raises(InvalidArgument, match="exists: record to a new file"):
            box.record_episodes(path)
        with pytest.raises(InvalidArgument, match="of version 9; this release reads version 1"):
            box.replay_episodes(path)
        path.write_text(
            '{"format": "sandmesh-episodes", "version": 1}\n{"tool": "run_shell_command", "arguments": {}}\n'
        )
        with pytest.raises(InvalidArgument, match=r"line 2 of .* is not a call of an episode"):
            box.replay_episodes(path)
        with pytest.raises(InvalidArgument, match="cannot be written"):
            box.record_episodes(tmp_path / "missing" / "episodes.jsonl")
