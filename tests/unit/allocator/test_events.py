"""What happened to a sandbox, while it is there and after."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import CapabilityMissing, InvalidArgument, LeaseLost, WrongState
from sandmeshd.allocator.records.event_log import EventLog
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import ProcessDriver
from tests.unit.store.waiting import until


async def test_a_life_is_told_in_order_with_reasons_and_actors_and_stays_after_its_end(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", user="ann")).sandbox
        for _ in range(3):
            await allocator.renew(sandbox)
        event_log = EventLog(mesh.store, 0.01)
        assert await event_log.append(sandbox.sandbox_id, "egress_refused", "example.org is not granted", "driver")
        await allocator.release(sandbox)
        await allocator.until_used(0)
        events = await allocator.events(sandbox.sandbox_id)
        kinds = [(event.kind, event.actor) for event in events]
        assert kinds == [
            ("created", "ann"), ("leased", "mesh"), ("renewed", "holder"), ("egress_refused", "driver"),
            ("stopping", "holder"), ("deleted", "mesh"),
        ]  # fmt: skip
        assert {(event.sandbox_id, event.user_id, event.session_key) for event in events} == {
            (sandbox.sandbox_id, "ann", "one")
        }
        later = await allocator.events(sandbox.sandbox_id, after=events[2].event_id)
        assert [event.kind for event in later] == ["egress_refused", "stopping", "deleted"]
        assert not await event_log.append("sb_none", "egress_refused", "", "driver")


async def test_who_follows_a_mesh_hears_of_each_sandbox(mesh: Mesh) -> None:
    async with mesh.allocator(event_poll_seconds=0.01) as allocator:
        await allocator.claim("before")
        heard: list[tuple[str, str]] = []
        watching = allocator.stub.WatchSandboxes(pb.WatchSandboxesRequest())

        async def follow() -> None:
            async for response in watching:
                event = response.event
                heard.append((event.session_key, event.kind))

        task = asyncio.create_task(follow())

        async def something() -> bool:
            await allocator.claim("after", slot=f"slot {len(heard)}")
            return ("after", "leased") in heard

        await until(something)
        assert not [kind for session, kind in heard if session == "before"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_event_id_that_is_none_is_refused(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        with pytest.raises(InvalidArgument, match="after_event_id"):
            await allocator.events(after="yesterday")


async def test_a_sandbox_is_paused_and_resumed_by_its_holder_only(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        token = sandbox.lease.fencing_token
        for _ in range(2):
            paused = await allocator.pause(sandbox, token)
            assert paused.state == pb.SANDBOX_STATE_PAUSED
        with pytest.raises(WrongState):
            await allocator.resolve(sandbox.sandbox_id)
        with pytest.raises(LeaseLost):
            await allocator.resume(sandbox, token - 1)
        assert (await allocator.resume(sandbox, token)).state == pb.SANDBOX_STATE_READY
        kinds = [event.kind for event in await allocator.events(sandbox.sandbox_id)]
        assert kinds == ["created", "leased", "paused", "resumed"]


async def test_a_driver_that_cannot_pause_leaves_the_sandbox_as_it_was(mesh: Mesh) -> None:
    class Plain(ProcessDriver):
        async def pause_sandbox(self, request: object) -> object:  # type: ignore[override]  # it only refuses
            raise CapabilityMissing("no pause", {"needs": "pause"})

    async with mesh.over({"process": Plain(mesh.runtime)}) as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        with pytest.raises(CapabilityMissing):
            await allocator.pause(sandbox, sandbox.lease.fencing_token)
        assert (await allocator.get(sandbox.sandbox_id)).state == pb.SANDBOX_STATE_READY
        assert (await allocator.renew(sandbox)).holder == "one"
