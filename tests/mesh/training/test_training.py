"""Training environments in sandboxes: episodes, and every way in which a caller or an environment gets it wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import InstanceFailed, Output, SandboxAsync, TrainingSandbox, TrainingSandboxAsync, errors
from sandmesh.sandbox.training.methods import EpisodeRefused, InstanceNotFound
from tests.mesh.conftest import run_mesh
from tests.mesh.training.training_environments import GamesSandboxAsync

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


def say(number: int) -> dict[str, str]:
    """Return a guess."""
    return {"role": "assistant", "content": str(number)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(address: str) -> AsyncGenerator[GamesSandboxAsync]:
    """Run a sandbox with the environments of these tests."""
    async with GamesSandboxAsync(base_url=address, timeout=200) as running:
        yield running


async def begin(box: TrainingSandboxAsync, env_type: str = "broken", task_id: str = "one") -> str:
    """Create an instance and return its id."""
    first = await box.create_instance(env_type, task_id)
    made: str = first["info"]["instance_id"]
    return made


async def until_free(box: TrainingSandboxAsync, instance: str) -> None:
    """Evaluate an instance until no other call of it is under way."""
    async with asyncio.timeout(60):
        while True:
            try:
                await box.evaluate(instance)
            except EpisodeRefused:
                continue
            return


async def processes_of(box: SandboxAsync) -> set[str]:
    """Return the process groups of environments in a sandbox, by what runs there."""
    found = await box.processes.start(["sh", "-c", "grep -l training/__main_[_] /proc/[0-9]*/cmdline; true"])
    async with found as process:
        text = b"".join([event.data async for event in process if isinstance(event, Output)])
    return set(text.decode().split())


async def test_an_episode_goes_from_its_first_state_to_its_score(box: GamesSandboxAsync) -> None:
    assert await box.get_task_ids("guess") == ["number-3", "number-7", "number-9"]
    assert await box.get_env_profile("guess", split="test") == ["number-5"]
    first = await box.create_instance("guess", "number-7", "mine")
    assert first["state"] == [{"role": "user", "content": "Guess."}]
    assert (first["info"]["instance_id"], first["info"]["task_id"]) == ("mine", "number-7")
    assert await box.step("mine", say(4)) == {
        "state": [{"role": "user", "content": "Off by 3."}], "reward": 0.0, "is_terminated": False, "info": {},
    }  # fmt: skip
    last = await box.step("mine", say(7))
    assert (last["reward"], last["is_terminated"]) == (1.0, True)
    assert await box.evaluate("mine") == 1.0
    assert await box.evaluate("mine", params={"whole": True}) == {"accuracy": 0.5}
    assert await box.release_instance("mine") is True
    assert await box.release_instance("mine") is False


async def test_each_instance_is_a_process_of_its_own_and_they_run_at_the_same_time(box: GamesSandboxAsync) -> None:
    firsts = await asyncio.gather(*(box.create_instance("guess", "number-3", f"of-{number}") for number in range(20)))
    assert len({first["info"]["pid"] for first in firsts}) == 20
    stepped = await asyncio.gather(*(box.step(f"of-{number}", say(number)) for number in range(20)))
    assert [one["is_terminated"] for one in stepped] == [number == 3 for number in range(20)]
    assert all(await asyncio.gather(*(box.release_instance(f"of-{number}") for number in range(20))))


async def test_an_instance_that_is_released_closes_its_environment(box: GamesSandboxAsync) -> None:
    await box.create_instance("guess", "number-3", "closing", {"closing": "/workspace/closed.txt"})
    assert await box.release_instance("closing")
    assert await box.fs.read("closed.txt") == "closed"


async def test_what_is_unknown_is_refused_and_says_what_there_is(box: GamesSandboxAsync) -> None:
    with pytest.raises(errors.InvalidArgument, match="no environment 'gess'; the sandbox has: broken, guess, gym"):
        await box.create_instance("gess", "number-3")
    with pytest.raises(errors.InvalidArgument, match="no task 'number-4'"):
        await box.create_instance("guess", "number-4")
    with pytest.raises(errors.InvalidArgument, match="no split 'dev': choose from train, test"):
        await box.get_task_ids("guess", "dev")
    for call in (box.step("nobody", say(1)), box.evaluate("nobody")):
        with pytest.raises(InstanceNotFound, match="no instance 'nobody'") as raised:
            await call
        assert raised.value.fault == "task"
    with pytest.raises(errors.InvalidArgument, match="task_id"):
        await box.create_instance("guess", 1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_an_id_can_be_used_once_at_a_time(box: GamesSandboxAsync) -> None:
    await box.create_instance("guess", "number-3", "twice")
    with pytest.raises(errors.AlreadyExists, match="'twice'"):
        await box.create_instance("guess", "number-7", "twice")
    assert await box.release_instance("twice")
    await box.create_instance("guess", "number-7", "twice")
    assert await box.release_instance("twice")


async def test_a_step_after_the_end_is_refused_and_the_score_stays(box: GamesSandboxAsync) -> None:
    instance = await begin(box, "guess", "number-5")
    await box.step(instance, say(5))
    with pytest.raises(EpisodeRefused, match="is over: evaluate or release it") as raised:
        await box.step(instance, say(5))
    assert raised.value.fault == "task"
    assert await box.evaluate(instance) == 1.0


async def test_an_action_of_the_wrong_form_leaves_the_episode_as_it_was(box: GamesSandboxAsync) -> None:
    instance = await begin(box, "guess", "number-5")
    actions: list[object] = [None, 5, "5", [], {"content": "five"}]
    for action in actions:
        with pytest.raises(errors.InvalidArgument, match="An action is"):
            await box.step(instance, action)
    assert (await box.step(instance, say(5)))["reward"] == 1.0
    assert await box.evaluate(instance, params={"whole": True}) == {"accuracy": 1.0}


async def test_of_two_steps_at_once_the_second_is_refused(box: GamesSandboxAsync) -> None:
    instance, under_way = await begin(box), asyncio.Event()
    arguments = {"instance_id": instance, "action": "hangs", "timeout": 3}
    slow = asyncio.create_task(box.call_tool("step", arguments, lambda _: under_way.set()))
    await under_way.wait()
    with pytest.raises(EpisodeRefused, match="is busy with another call") as raised:
        await box.step(instance, "is fine")
    assert raised.value.fault == "task"
    assert (await slow).fault == "limit"


@pytest.mark.parametrize(
    ("action", "message", "fault"),
    [
        ("hangs", "step took longer than 2 s", "limit"),
        ("floods", "step took longer than 2 s", "limit"),
        ("says too much", "replied with more than 16 MiB", "limit"),
        ("exits", "its process ended during step .exit code 7.", "task"),
        ("is killed", "its process ended during step .signal 9.", "task"),
        ("forks", "its process ended during step .exit code 3.", "task"),
        ("raises", "step raised RuntimeError: the world is flat", "task"),
        ("returns no reward", "step.. returned no reward", "task"),
        ("returns an object", "object cannot be written as JSON", "task"),
        ("writes to its descriptors", "replied with more than 16 MiB", "limit"),
    ],
)
async def test_an_environment_that_fails_ends_its_instance_with_its_last_words_and_no_other(
    box: GamesSandboxAsync, action: str, message: str, fault: str
) -> None:
    other, instance = await begin(box, "guess", "number-9"), await begin(box)
    with pytest.raises(InstanceFailed, match=message) as raised:
        await box.step(instance, action, timeout=2 if action in ("hangs", "floods") else None)
    assert raised.value.fault == fault
    assert any("flooded with words" in line or f"now it {action}" in line for line in raised.value.last_words)
    with pytest.raises(InstanceFailed, match=message):
        await box.evaluate(instance)
    assert (await box.step(other, say(9)))["reward"] == 1.0
    assert await box.release_instance(instance)
    assert await box.release_instance(other)


async def test_a_failure_in_a_create_leaves_no_instance(box: GamesSandboxAsync) -> None:
    with pytest.raises(InstanceFailed, match="create raised ValueError: no such luck") as raised:
        await box.create_instance("broken", "raises", "gone")
    assert raised.value.fault == "task"
    with pytest.raises(InstanceFailed, match="create took longer than 1 s") as raised:
        await box.create_instance("broken", "hangs", "gone", timeout=1)
    assert (raised.value.fault, list(raised.value.last_words)) == ("limit", ["about to hang"])
    with pytest.raises(InstanceFailed, match="tasks took longer than 1 s"):
        await box.get_task_ids("broken", "test", timeout=1)
    with pytest.raises(InstanceFailed, match="'unimportable' cannot be imported: ModuleNotFoundError"):
        await box.get_task_ids("unimportable")
    assert not await box.release_instance("gone")


async def test_a_cancelled_step_ends_its_instance(box: GamesSandboxAsync) -> None:
    instance = await begin(box)
    async for _ in box.stream("step", instance_id=instance, action="hangs"):
        break
    with pytest.raises(InstanceFailed, match="cancelled") as raised:
        await until_free(box, instance)
    assert raised.value.fault == "infra"


async def test_a_tool_call_reports_a_failure_as_a_result(box: GamesSandboxAsync) -> None:
    instance = await begin(box)
    result = await box.call_tool("step", {"instance_id": instance, "action": "hangs", "timeout": 1})
    assert (result.is_error, result.fault) == (True, "limit")
    assert "now it hangs" in result.text
    assert result.structured is not None
    assert result.structured["error"]["kind"] == "INSTANCE_FAILED"


async def test_ended_instances_leave_no_process(address: str) -> None:
    async with GamesSandboxAsync(base_url=address, timeout=200) as box:
        kept = await begin(box)
        before = await processes_of(box)
        for action in ("hangs", "exits", "forks", "is killed"):
            with pytest.raises(InstanceFailed):
                await box.step(await begin(box), action, timeout=1)
        async with asyncio.timeout(60):
            while await processes_of(box) != before:
                pass
        assert await box.evaluate(kept) == 1.0


async def test_a_sandbox_has_a_largest_number_of_instances(address: str) -> None:
    async with GamesSandboxAsync(base_url=address, timeout=200) as box:
        await asyncio.gather(*(box.create_instance("guess", "number-3") for _ in range(200)))
        with pytest.raises(EpisodeRefused, match="200 instances: release some"):
            await box.create_instance("guess", "number-3")


async def test_the_environments_of_gymnasium_are_there_by_name(address: str) -> None:
    async with TrainingSandboxAsync(base_url=address, timeout=200) as box:
        assert await box.get_task_ids("gym:CartPole-v1", params={"count": 2}) == ["0", "1"]
        assert (await box.get_task_ids("gym:CartPole-v1", "test"))[0] == "1000000"
        one, other = [(await box.create_instance("gym:CartPole-v1", 7))["state"] for _ in range(2)]
        assert one == other
        instance = await begin(box, "gym:CartPole-v1", "7")
        total = 0.0
        while not (stepped := await box.step(instance, {"action": 0}))["is_terminated"]:
            total += stepped["reward"]
        assert await box.evaluate(instance) == total + stepped["reward"]
        with pytest.raises(errors.InvalidArgument, match="5 is not an action of Discrete"):
            await box.step(await begin(box, "gym:CartPole-v1", "7"), 5)
        with pytest.raises(errors.InvalidArgument, match="no environment 'Cart-v9'"):
            await box.create_instance("gym:Cart-v9", "7")
        with pytest.raises(errors.InvalidArgument, match="a task of gym is a seed"):
            await box.create_instance("gym:CartPole-v1", "seven")
        with pytest.raises(errors.ToolNotFound):
            await box.call_tool("run_ipython_cell", {"code": "1"})


async def test_games_of_textarena_are_there_by_name_and_by_seed(address: str) -> None:
    async with TrainingSandboxAsync(base_url=address, timeout=200, sandbox_type="textarena") as box:
        game = "textarena:GuessTheNumber-v0"
        assert (await box.get_task_ids(game))[:2] == ["0", "1"]
        for task_id in ("0", "1000000"):
            low, high, seen = 1, 20, ""
            first = await box.create_instance(game, task_id, f"game-{task_id}")
            assert "guess the number between 1 and 20" in first["state"][0]["content"]
            answer: dict[str, Any] = {"is_terminated": False}
            while not answer["is_terminated"]:
                guess = (low + high) // 2
                answer = await box.step(first["info"]["instance_id"], {"role": "assistant", "content": f"[{guess}]"})
                seen = answer["state"][-1]["content"]
                low, high = (guess + 1, high) if "higher" in seen else (low, guess - 1)
            assert (answer["reward"], await box.evaluate(first["info"]["instance_id"])) == (1.0, 1.0), seen
        await box.create_instance(game, "0", "other")
        with pytest.raises(errors.InvalidArgument, match="An action is the player's message"):
            await box.step("other", 7)
        with pytest.raises(errors.InvalidArgument, match=r"no game 'Wordle-v0'.*choose from 2048-v0"):
            await box.get_task_ids("textarena:Wordle-v0")
        with pytest.raises(errors.InvalidArgument, match=r"A task is a seed, such as '7', not 'seven'"):
            await box.create_instance(game, "seven")


async def test_a_program_without_an_event_loop_runs_episodes(address: str) -> None:
    scores: list[object] = []

    def program() -> None:
        with TrainingSandbox(base_url=address, timeout=200) as box:
            first = box.create_instance(env_type="gym:CartPole-v1", task_id="3")
            box.step(first["info"]["instance_id"], {"action": 1})
            scores.append(box.evaluate(first["info"]["instance_id"]))

    thread = threading.Thread(target=program)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert scores == [1.0]
