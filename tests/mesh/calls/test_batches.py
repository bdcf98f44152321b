"""Many sandboxes at once, on a whole mesh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import Mesh, MeshAsync
from sandmesh.errors import DeadlineExceeded, InvalidArgument, TemplateNotFound
from sandmeshd.mesh import Mesh as RunningMesh


@pytest.fixture
def mesh(fresh_mesh: RunningMesh) -> RunningMesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


@pytest_asyncio.fixture(loop_scope="module")
async def client(mesh: RunningMesh) -> AsyncGenerator[MeshAsync]:
    """Connect a client."""
    async with MeshAsync(mesh.addresses[0]) as connected:
        yield connected


async def test_a_batch_comes_one_by_one_and_its_job_ends_together(client: MeshAsync) -> None:
    async with asyncio.timeout(60):
        items = [item async for item in client.create_many(6, job="rollout", concurrency=3, labels={"team": "red"})]
        assert sorted(item.index for item in items) == list(range(6))
        boxes = [item.sandbox for item in items if item.sandbox is not None]
        assert len(boxes) == 6
        assert all(item.seconds > 0 and item.fault is None for item in items)
        answers = await asyncio.gather(*(box.run_ipython_cell(f"6 * {at}") for at, box in enumerate(boxes)))
        assert [answer.text for answer in answers] == [str(6 * at) for at in range(6)]
        listed = await client.sandboxes.list(labels={"job": "rollout", "team": "red"})
        assert {one.sandbox_id for one in listed} == {box.sandbox_id for box in boxes}
        assert await client.sandboxes.release_all({"job": "another"}) == 0
        assert await client.sandboxes.release_all({"job": "rollout"}) == 6
        assert [sandbox for sandbox in await client.sandboxes.list(labels={"job": "rollout"}) if sandbox.in_use] == []
        for box in boxes:
            await box.close()


async def test_what_cannot_be_created_is_an_item_with_its_error_and_fault(client: MeshAsync) -> None:
    async with asyncio.timeout(60):
        items = [item async for item in client.create_many(3, "no-such-type")]
    assert [type(item.error) for item in items] == [TemplateNotFound] * 3
    assert {item.fault for item in items} == {"task"}
    assert [item.sandbox for item in items] == [None] * 3


async def test_the_first_failure_ends_a_batch_that_is_to_raise(client: MeshAsync) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(TemplateNotFound):
            _ = [item async for item in client.create_many(3, "no-such-type", on_error="raise")]


async def test_a_deadline_leaves_items_that_name_it_and_no_sandbox(client: MeshAsync) -> None:
    async with asyncio.timeout(60):
        items = [item async for item in client.create_many(4, job="late", deadline=0.001)]
        assert {type(item.error) for item in items} == {DeadlineExceeded}
        assert {item.fault for item in items} == {"limit"}
        while [sandbox for sandbox in await client.sandboxes.list(labels={"job": "late"}) if sandbox.in_use]:
            pass


async def test_a_batch_that_is_closed_early_leaves_only_what_was_taken(client: MeshAsync) -> None:
    async with asyncio.timeout(60):
        async with client.create_many(8, job="early", concurrency=4) as items:
            first = await anext(items)
        assert first.sandbox is not None
        while len([sandbox for sandbox in await client.sandboxes.list(labels={"job": "early"}) if sandbox.in_use]) > 1:
            pass
        assert (await first.sandbox.run_ipython_cell("1 + 1")).text == "2"
        await first.sandbox.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"count": 0}, "count is 0"),
        ({"count": 2, "concurrency": -1}, "concurrency is -1"),
        ({"count": 2, "deadline": 0}, "deadline is 0"),
        ({"count": 2, "on_error": "ignore"}, "on_error is 'ignore'"),
        ({"count": 2, "priority": "soon"}, "priority is 'interactive' or 'batch', not 'soon'"),
        ({"count": 2, "fair_share": 0}, "fair_share is a whole number from 1 to 100, not 0"),
        ({"count": 2, "fair_share": 2, "priority": "interactive"}, "fair_share is for the priority 'batch'"),
        ({"count": 2, "limits": {"memory": "much"}}, "memory"),
    ],
)
async def test_a_batch_with_wrong_arguments_creates_nothing(
    client: MeshAsync, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        client.create_many(**arguments)  # type: ignore[arg-type]  # what callers without types may pass
    with pytest.raises(InvalidArgument, match="at least one label"):
        await client.sandboxes.release_all({})
    assert await client.sandboxes.list() == []


async def test_a_program_without_an_event_loop_gets_batches_too(mesh: RunningMesh) -> None:
    def roll_out() -> list[str]:
        with Mesh(mesh.addresses[0]) as client:
            texts: list[str] = []
            for item in client.create_many(3, "filesystem", job="sync"):
                assert item.sandbox is not None
                with item.sandbox as box:
                    texts.append(f"{box.sandbox_type} {box.run_shell_command('echo hi').stdout}")
            assert client.sandboxes.release_all({"job": "sync"}) == 0
            return texts

    async with asyncio.timeout(60):
        assert await asyncio.to_thread(roll_out) == ["filesystem hi\n"] * 3
