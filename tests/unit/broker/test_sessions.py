"""Sessions: the same ids give the same sandboxes, and only to their user."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.errors import InvalidArgument, PoolExhausted, SandboxStartFailed, SessionNotFound
from sandmeshd.store import Store
from tests.unit.allocator.process_driver import Runtime, start_failure
from tests.unit.broker.conftest import Broker, run_broker
from tests.unit.store.waiting import until


def _ids(session: pb.Session) -> dict[str, str]:
    return {slot: sandbox.sandbox_id for slot, sandbox in session.sandboxes.items()}


async def test_the_same_ids_give_the_same_sandboxes(broker: Broker) -> None:
    first = await broker.connect("ann", "work", ["base", "other"])
    again = await broker.connect("ann", "work", ["other", "base"])
    assert list(first.created_slots) == ["base", "other"]
    assert list(again.created_slots) == []
    assert _ids(again.session) == _ids(first.session)
    assert again.session.session_key == first.session.session_key
    assert set(first.session.sandboxes) == {"base", "other"}
    assert all(box.state == sandbox_pb2.SANDBOX_STATE_READY for box in first.session.sandboxes.values())
    assert len(broker.runtime.created) == 2


async def test_what_a_session_has_besides_stays(broker: Broker) -> None:
    first = await broker.connect("ann", "work", ["base"])
    second = await broker.connect("ann", "work", ["other"])
    assert list(second.created_slots) == ["other"]
    assert second.session.sandboxes["base"].sandbox_id == first.session.sandboxes["base"].sandbox_id


async def test_another_user_never_gets_a_session(broker: Broker) -> None:
    anns = (await broker.connect("ann", "work")).session
    bobs = (await broker.connect("bob", "work")).session
    assert anns.session_key != bobs.session_key
    assert anns.sandboxes["base"].sandbox_id != bobs.sandboxes["base"].sandbox_id
    with pytest.raises(SessionNotFound):
        await broker.get("eve", "work")
    assert await broker.release("eve", "work") == []
    with pytest.raises(SessionNotFound):
        await broker.keep("eve", "work")
    assert not (await broker.page("eve")).sessions
    assert (await broker.get("ann", "work")) == anns


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("1:a", "b"), ("1", "a:b")),
        (("a", "\u0000b"), ("a\u0000", "b")),
        (("\u00e9", "x"), ("e\u0301", "x")),
        (("user{m}", "x"), ("user", "{m}x")),
        (("\U0001f600" * 255, "x"), ("\U0001f600" * 254, "\U0001f600x")),
    ],
)
async def test_ids_of_any_characters_never_meet_another_pair(
    broker: Broker, one: tuple[str, str], two: tuple[str, str]
) -> None:
    first = (await broker.connect(*one, templates=[])).session
    second = (await broker.connect(*two, templates=[])).session
    assert (first.user_id, first.session_id) == one
    assert first.session_key != second.session_key
    assert [session.session_id for session in (await broker.page(one[0])).sessions] == [one[1]]


async def test_empty_ids_make_an_anonymous_session_of_its_own(broker: Broker) -> None:
    first = (await broker.connect()).session
    second = (await broker.connect()).session
    assert first.user_id != second.user_id
    assert first.session_id != second.session_id
    assert first.sandboxes["base"].sandbox_id != second.sandboxes["base"].sandbox_id
    assert (await broker.get(first.user_id, first.session_id)) == first


async def test_ids_that_are_too_long_and_slots_asked_for_twice_are_refused(broker: Broker) -> None:
    with pytest.raises(InvalidArgument, match="user_id"):
        await broker.connect("x" * 256, "s")
    with pytest.raises(InvalidArgument, match="twice"):
        await broker.connect("ann", "work", ["base", "base"])
    with pytest.raises(InvalidArgument, match="template"):
        await broker.connect("ann", "work", [""])
    with pytest.raises(InvalidArgument, match="user_id"):
        await broker.page("")


async def test_when_one_slot_fails_what_was_created_is_released_and_the_rest_stays(broker: Broker) -> None:
    kept = (await broker.connect("ann", "work", ["base"])).session.sandboxes["base"]
    broker.runtime.failures.append(start_failure())
    with pytest.raises(SandboxStartFailed):
        await broker.connect("ann", "work", ["base", "other", "bare"])
    await broker.until_alive(1)
    assert list(broker.runtime.processes) == [kept.sandbox_id]
    assert "base" in (await broker.get("ann", "work")).sandboxes


async def test_a_new_session_in_a_full_mesh_leaves_nothing(store: Store, runtime: Runtime, tmp_path: Path) -> None:
    async with run_broker(store, runtime, tmp_path, capacity=1) as broker:
        with pytest.raises(PoolExhausted):
            await broker.connect("ann", "work", ["base", "other"], timeout=2)
        await broker.until_alive(0)
        with pytest.raises(SessionNotFound):
            await broker.get("ann", "work")


async def test_a_caller_that_goes_away_while_connecting_leaves_nothing(broker: Broker) -> None:
    broker.runtime.gate.clear()
    task = asyncio.create_task(broker.connect("ann", "work", ["base", "other"]))
    await broker.runtime.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async def empty() -> bool:
        return (await broker.sandboxes.GetCapacity(sandbox_pb2.GetCapacityRequest())).used == 0

    await until(empty)
    assert broker.runtime.processes == {}


async def test_keeping_a_session_moves_every_deadline(broker: Broker) -> None:
    before = (await broker.connect("ann", "work", ["base", "other"])).session
    after = await broker.keep("ann", "work")
    for slot, sandbox in before.sandboxes.items():
        assert after.sandboxes[slot].lease.fencing_token == sandbox.lease.fencing_token
        moved = after.sandboxes[slot].lease.expire_time.ToMicroseconds()
        assert moved > sandbox.lease.expire_time.ToMicroseconds()
    assert await broker.get("ann", "work") == after


async def test_slots_and_sessions_are_released_and_a_repeated_release_is_answered(broker: Broker) -> None:
    session = (await broker.connect("ann", "work", ["base", "other"])).session
    assert await broker.release("ann", "work", ["other"]) == [session.sandboxes["other"].sandbox_id]
    assert set((await broker.get("ann", "work")).sandboxes) == {"base"}
    assert await broker.release("ann", "work") == [session.sandboxes["base"].sandbox_id]
    assert await broker.release("ann", "work") == []
    with pytest.raises(SessionNotFound):
        await broker.get("ann", "work")
    await broker.until_alive(0)


async def test_a_user_s_sessions_are_listed_in_pages(broker: Broker) -> None:
    for number in range(5):
        await broker.connect("ann", f"s{number}", [])
    await broker.connect("bob", "s0", [])
    names: list[str] = []
    token = ""
    while True:
        page = await broker.page("ann", 2, token)
        names += [session.session_id for session in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert sorted(names) == [f"s{number}" for number in range(5)]


async def test_two_callers_connecting_one_session_at_once_share_it(broker: Broker) -> None:
    answers = await asyncio.gather(*(broker.connect("ann", "work", ["base", "other"]) for _ in range(8)))
    assert len({answer.session.sandboxes["base"].sandbox_id for answer in answers}) == 1
    assert len(broker.runtime.created) == 2


async def test_sandboxes_under_slots_of_their_own_names(broker: Broker) -> None:
    slots = [pb.SlotSpec(slot=name, spec=sandbox_pb2.SandboxSpec(template="base")) for name in ("left", "right")]
    request = pb.ConnectSessionRequest(user_id="ann", session_id="work", slots=slots)
    session = (await broker.stub.ConnectSession(request)).session
    assert set(session.sandboxes) == {"left", "right"}
    assert session.sandboxes["left"].sandbox_id != session.sandboxes["right"].sandbox_id
