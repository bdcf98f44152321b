"""The Berkeley Function Calling Leaderboard as an environment: its scores are the package's own."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from benchmarks.bfcl import compare

from sandmesh import BFCLSandbox, BFCLSandboxAsync, errors
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CATEGORIES = 17


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(address: str) -> AsyncGenerator[BFCLSandboxAsync]:
    """Run a sandbox with the environment."""
    async with BFCLSandboxAsync(base_url=address, timeout=200) as running:
        yield running


def calling(*calls: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return an assistant's message with calls, as OpenAI's interface has them."""
    listed = [{"type": "function", "function": {"name": name, "arguments": json.dumps(args)}} for name, args in calls]
    return {"role": "assistant", "content": None, "tool_calls": listed}


async def test_episodes_have_the_scores_of_the_packages_own_runner(address: str) -> None:
    def program() -> Mapping[str, Counter[str]]:
        with BFCLSandbox(base_url=address, timeout=200) as box:
            return compare(box, 97)

    counts = await asyncio.to_thread(program)
    assert len(counts) == CATEGORIES
    for category, count in counts.items():
        assert count["differ"] == 0, (category, count)
        assert 0 < count["package"] < count["answers"], (category, count)


async def test_a_program_of_the_old_documentation_runs(box: BFCLSandboxAsync) -> None:
    profile = await box.get_env_profile(env_type="bfcl", split="train")
    first = await box.create_instance(env_type="bfcl", task_id=profile[0])
    instance_id, state = first["info"]["instance_id"], first["state"]
    assert [message["role"] for message in state] == ["system", "user"]
    assert '"name":"cd"' in state[0]["content"]
    call = '<tool_call>\n{"name": "cd", "arguments": {"folder": "document"}}\n</tool_call>'
    answer = await box.step(instance_id, {"role": "assistant", "content": f"First {call} and then {call}"})
    assert answer["state"][0]["role"] == "user"
    assert "current_working_directory" in answer["state"][0]["content"]
    assert (answer["reward"], answer["is_terminated"]) == (0.0, False)
    assert await box.evaluate(instance_id, messages={}, params={"sparse": True}) == 0.0
    assert await box.release_instance(instance_id)


async def test_tasks_are_those_of_categories_and_one_in_five_is_for_tests(box: BFCLSandboxAsync) -> None:
    every, train, test = [await box.get_task_ids("bfcl:live", split) for split in ("all", "train", "test")]
    assert len(every) == 2251
    assert sorted([*train, *test]) == sorted(every)
    assert len(await box.get_task_ids("bfcl:all", "all")) == 4441
    assert await box.get_task_ids("bfcl", "test", {"category": "multi_turn_base"}) == [
        f"multi_turn_base_{number}" for number in range(4, 200, 5)
    ]
    with pytest.raises(errors.InvalidArgument, match="'memory_kv' is not served"):
        await box.get_task_ids("bfcl:memory_kv")
    with pytest.raises(errors.InvalidArgument, match="'swimming' is unknown"):
        await box.get_task_ids("bfcl:swimming")
    with pytest.raises(errors.InvalidArgument, match="no task 'simple_python_9999'"):
        await box.create_instance("bfcl", "simple_python_9999")


async def test_a_tool_that_was_held_back_is_shown_in_its_turn(box: BFCLSandboxAsync) -> None:
    first = await box.create_instance("bfcl", "multi_turn_miss_func_0", "held")
    shown = {tool["name"] for tool in first["info"]["tools"]}
    answer: dict[str, Any] = {}
    for _ in range(3):
        answer = await box.step("held", {"role": "assistant", "content": "I cannot."})
    assert {tool["name"] for tool in answer["info"]["tools"]} - shown == {"sort"}
    assert [message["role"] for message in answer["state"]] == ["system", "user"]


async def test_an_episode_ends_after_too_many_steps_of_a_turn(box: BFCLSandboxAsync) -> None:
    await box.create_instance("bfcl", "multi_turn_base_0", "endless")
    for _ in range(20):
        assert not (await box.step("endless", calling(("ls", {}))))["is_terminated"]
    last = await box.step("endless", calling(("ls", {})))
    assert (last["is_terminated"], last["reward"]) == (True, 0.0)
    found = await box.evaluate("endless")
    assert found["error"]["error_type"] == "multi_turn:force_terminated"


@pytest.mark.parametrize(
    "call",
    [
        ("__import__('os').system", {"command": "touch /workspace/broken"}),
        ("exec", {"source": "open('/workspace/broken', 'w')"}),
        ("open", {"file": "/workspace/broken", "mode": "w"}),
        ("ls", {"a=open('/workspace/broken', 'w')) or dict(b": 1}),
    ],
)
async def test_a_call_is_never_more_than_a_call_of_a_tool(
    box: BFCLSandboxAsync, call: tuple[str, Mapping[str, Any]]
) -> None:
    first = await box.create_instance("bfcl", "multi_turn_base_1")
    answer = await box.step(first["info"]["instance_id"], calling(call))
    assert "is not defined" in answer["info"]["tool_results"][0]
    assert not await box.fs.exists("broken")


@pytest.mark.parametrize("action", ["hello", 5, [], {}, {"role": "assistant"}, None])
async def test_what_is_no_message_is_refused(box: BFCLSandboxAsync, action: object) -> None:
    first = await box.create_instance("bfcl", "simple_python_0")
    with pytest.raises(errors.InvalidArgument, match="An action is an assistant's message"):
        await box.step(first["info"]["instance_id"], action)


@pytest.mark.parametrize("content", ["<tool_call>{</tool_call>", "<tool_call>[]</tool_call>", '<tool_call>{"name": 1}'])
async def test_what_is_no_call_counts_as_none(box: BFCLSandboxAsync, content: str) -> None:
    first = await box.create_instance("bfcl", "irrelevance_0")
    answer = await box.step(first["info"]["instance_id"], {"role": "assistant", "content": content})
    assert answer["reward"] == 1.0
