"""Claims and leases: who gets which sandbox, with which token, for how long."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import (
    CapabilityMissing,
    DeadlineExceeded,
    InvalidArgument,
    LeaseLost,
    SandboxLost,
    SandboxNotFound,
    SandboxStartFailed,
    TemplateNotFound,
    WrongState,
)
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.process_driver import AGENT_TOKEN, ProcessDriver, Runtime, start_failure
from tests.unit.store.waiting import commands, until

# The same scripts, on the embedded server and on one by its URL.
pytestmark = pytest.mark.parametrize("store", ["embedded", "external"], indirect=True)


async def test_the_same_session_gets_the_same_sandbox_with_the_same_token(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        first = await allocator.claim("one")
        second = await allocator.claim("one")
        assert first.claimed
        assert not second.claimed
        assert second.sandbox.sandbox_id == first.sandbox.sandbox_id
        assert second.sandbox.lease.fencing_token == first.sandbox.lease.fencing_token
        assert len(mesh.runtime.created) == 1


async def test_two_sessions_and_two_slots_never_share_a_sandbox(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        answers = await asyncio.gather(
            allocator.claim("one"), allocator.claim("two"), allocator.claim("one", slot="other")
        )
        assert len({answer.sandbox.sandbox_id for answer in answers}) == 3


async def test_claims_at_the_same_time_for_one_slot_make_one_sandbox(mesh: Mesh) -> None:
    async with mesh.allocator("a") as a, mesh.allocator("b") as b:
        answers = await asyncio.gather(*(allocator.claim("one") for allocator in (a, b) for _ in range(10)))
        assert len({answer.sandbox.sandbox_id for answer in answers}) == 1
        assert [answer.claimed for answer in answers].count(True) == 1
        assert len(mesh.runtime.created) == 1


async def test_a_sandbox_has_what_was_asked_for_and_what_the_driver_said(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        spec = pb.SandboxSpec(template="base", environment={"A": "1"}, labels={"team": "x"}, port_count=2)
        sandbox = (await allocator.claim("one", spec=spec)).sandbox
        assert sandbox.state == pb.SANDBOX_STATE_READY
        assert sandbox.spec.environment == {"A": "1"}
        assert sandbox.spec.labels == {"team": "x"}
        assert sandbox.spec.driver == "process"
        assert list(sandbox.ports) == [20000, 20001]
        assert sandbox.enforced == {"memory": "no"}
        assert (sandbox.session_key, sandbox.slot, sandbox.lease.holder) == ("one", "base", "one")
        [request] = mesh.runtime.created
        assert list(request.ports) == [20000, 20001]
        assert request.fencing_token == sandbox.lease.fencing_token
        assert request.record_labels["session"] == "one"
        assert request.record_labels["generation"] == mesh.store.generation
        resolved = await allocator.resolve(sandbox.sandbox_id)
        assert resolved.endpoint == f"unix:///run/{sandbox.sandbox_id}"
        assert resolved.agent_token == AGENT_TOKEN


async def test_a_template_that_is_not_prepared_is_prepared_once_by_its_first_use(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        await asyncio.gather(*(allocator.claim(f"s{number}", "bare") for number in range(4)))
        assert mesh.runtime.prepare_count == 1


async def test_who_cannot_wait_for_a_template_is_told_how_far_it_is_and_the_next_finds_it_ready(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        mesh.runtime.prepares.clear()
        with pytest.raises(DeadlineExceeded, match="bare is being made ready") as late:
            await allocator.claim("one", "bare", timeout=4)
        assert late.value.facts == {"template": "bare", "step": "building"}
        (preparation,) = (await allocator.health()).preparations
        assert (preparation.template, preparation.step) == ("bare", "building")
        mesh.runtime.prepares.set()
        assert (await allocator.claim("one", "bare")).claimed
        assert mesh.runtime.prepare_count == 1
        assert not (await allocator.health()).preparations


async def test_a_template_that_was_unmade_meanwhile_is_prepared_again(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        await allocator.claim("one", "bare")
        mesh.runtime.prepared.discard("bare")
        assert (await allocator.claim("two", "bare")).claimed
        assert mesh.runtime.prepare_count == 2


async def test_bad_requests_are_refused_by_name_and_change_nothing(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        with pytest.raises(TemplateNotFound) as unknown:
            await allocator.claim("one", "nothing")
        assert unknown.value.facts["known"] == "bare, base, other"
        with pytest.raises(InvalidArgument, match="no driver"):
            await allocator.claim("one", spec=pb.SandboxSpec(template="base", driver="docker"))
        with pytest.raises(InvalidArgument, match=r"spec\.labels"):
            await allocator.claim("one", spec=pb.SandboxSpec(template="base", labels={"": "x"}))
        with pytest.raises(InvalidArgument, match="ttl"):
            await allocator.claim("one", ttl=0)
        with pytest.raises(InvalidArgument, match="session_key"):
            await allocator.claim("")
        assert (await allocator.capacity()).used == 0


async def test_ports_that_no_node_has_are_a_missing_capability(mesh: Mesh) -> None:
    bare = Runtime(node_id="bare")
    async with mesh.over({"bare": ProcessDriver(bare)}) as allocator:
        with pytest.raises(CapabilityMissing) as caught:
            await allocator.claim("one", ports=1)
        assert caught.value.facts["needs"] == "host_ports"


async def test_sandboxes_spread_over_nodes_and_keep_to_each_one_s_cap(mesh: Mesh) -> None:
    runtimes = [Runtime(node_id=f"node-{number}") for number in (1, 2)]
    drivers = {runtime.node_id: ProcessDriver(runtime) for runtime in runtimes}
    try:
        async with mesh.over(drivers, node_capacities={"node-1": 1}) as allocator:
            answers = [await allocator.claim(f"s{number}") for number in range(4)]
            nodes = sorted(answer.sandbox.node_id for answer in answers)
            assert nodes == ["node-1", "node-2", "node-2", "node-2"]
    finally:
        for runtime in runtimes:
            await runtime.close()


async def test_a_stale_token_renews_and_releases_nothing(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one")).sandbox
        stale = sandbox.lease.fencing_token - 1
        with pytest.raises(LeaseLost):
            await allocator.renew(sandbox, stale)
        with pytest.raises(LeaseLost):
            await allocator.release(sandbox, stale)
        assert (await allocator.get(sandbox.sandbox_id)).state == pb.SANDBOX_STATE_READY
        renewed = await allocator.renew(sandbox)
        assert renewed.expire_time.ToNanoseconds() > 0
        assert renewed.ttl == sandbox.lease.ttl
        assert renewed.ttl.ToNanoseconds() > 0


async def test_tokens_rise_with_every_lease_and_after_the_store_lost_its_data(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        tokens = [(await allocator.claim(f"s{number}")).sandbox.lease.fencing_token for number in range(3)]
        await commands(mesh.store).flushdb()
        tokens.append((await allocator.claim_when_recovered("after")).lease.fencing_token)
        assert tokens == sorted(set(tokens))


async def test_a_release_is_answered_again_after_the_sandbox_is_gone(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        sandbox = (await allocator.claim("one", ports=3)).sandbox
        await allocator.release(sandbox)
        await allocator.until_used(0)
        await allocator.release(sandbox)
        assert mesh.runtime.processes == {}
        assert not await mesh.store.hash("ports", "node-1")
        with pytest.raises(SandboxNotFound):
            await allocator.get(sandbox.sandbox_id)
        with pytest.raises(SandboxLost):
            await allocator.resolve(sandbox.sandbox_id)
        with pytest.raises(LeaseLost):
            await allocator.renew(sandbox)
        with pytest.raises(SandboxNotFound):
            await allocator.resolve("sb_never")


async def test_a_released_slot_gets_a_new_sandbox_at_once(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        first = (await allocator.claim("one")).sandbox
        await allocator.release(first)
        second = (await allocator.claim("one")).sandbox
        assert second.sandbox_id != first.sandbox_id
        assert second.lease.fencing_token > first.lease.fencing_token


async def test_a_lease_that_ran_out_ends_its_sandbox(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        await allocator.claim("short", ttl=0.1)
        kept = await allocator.claim("long")
        await allocator.until_used(1)
        assert list(mesh.runtime.processes) == [kept.sandbox.sandbox_id]


async def test_a_start_that_fails_at_each_try_is_told_to_all_who_wait_and_gives_everything_back(mesh: Mesh) -> None:
    async with mesh.allocator(create_attempts=2, create_pause_seconds=0.01) as allocator:
        mesh.runtime.failures += [start_failure(), start_failure()]
        answers = await asyncio.gather(*(allocator.claim("one", ports=5) for _ in range(3)), return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, SandboxStartFailed)]
        assert failed
        assert all(error.facts["detail"] == "no space left" for error in failed)
        held = await mesh.store.hash("ports", "node-1")
        assert len(held) == 5 * (len(failed) < 3)
        # The slot is free for another try.
        assert (await allocator.claim("one")).sandbox.state == pb.SANDBOX_STATE_READY


async def test_a_start_that_fails_once_is_tried_again_with_the_same_id_and_token(mesh: Mesh) -> None:
    async with mesh.allocator(create_pause_seconds=0.01) as allocator:
        mesh.runtime.failures.append(start_failure())
        sandbox = (await allocator.claim("one", ports=5)).sandbox
        assert sandbox.state == pb.SANDBOX_STATE_READY
        [made] = mesh.runtime.created
        assert (made.sandbox_id, made.fencing_token) == (sandbox.sandbox_id, sandbox.lease.fencing_token)
        assert set(await mesh.store.hash("ports", "node-1")) == {str(port) for port in sandbox.ports}


async def test_a_driver_s_defect_is_an_error_and_leaves_no_capacity_behind(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        mesh.runtime.prepared = None  # type: ignore[assignment]  # so that its create fails in an unforeseen way
        with pytest.raises(Exception, match=r"defect"):
            await allocator.claim("one")
        assert (await allocator.capacity()).used == 0


async def test_a_caller_that_goes_away_in_mid_create_leaves_nothing(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        mesh.runtime.gate.clear()
        task = asyncio.create_task(allocator.claim("one", ports=2))
        await mesh.runtime.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await allocator.until_used(0)
        assert mesh.runtime.processes == {}
        assert not await mesh.store.hash("ports", "node-1")
        assert not (await allocator.list()).sandboxes


async def test_a_caller_that_goes_away_leaves_the_sandbox_to_another_that_waits(mesh: Mesh) -> None:
    async with mesh.allocator("a") as a, mesh.allocator("b") as b:
        mesh.runtime.gate.clear()
        first = asyncio.create_task(a.claim("one"))
        await mesh.runtime.entered.wait()
        second = asyncio.create_task(b.claim("one"))
        [sandbox] = (await a.list()).sandboxes

        async def both_wait() -> bool:
            return int(await commands(mesh.store).zcard(mesh.store.key("interest", sandbox.sandbox_id))) == 2

        await until(both_wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        mesh.runtime.gate.set()
        assert (await second).sandbox.sandbox_id == sandbox.sandbox_id
        assert len(mesh.runtime.created) == 1


async def test_a_sandbox_that_is_starting_cannot_be_resolved_yet(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        mesh.runtime.gate.clear()
        task = asyncio.create_task(allocator.claim("one"))
        await mesh.runtime.entered.wait()
        [sandbox] = (await allocator.list()).sandboxes
        assert sandbox.state == pb.SANDBOX_STATE_STARTING
        with pytest.raises(WrongState):
            await allocator.resolve(sandbox.sandbox_id)
        mesh.runtime.gate.set()
        await task


async def test_a_listing_is_by_id_in_pages_and_by_session_and_label(mesh: Mesh) -> None:
    async with mesh.allocator() as allocator:
        for number in range(5):
            labels = {"odd": str(number % 2), "all": "yes"}
            await allocator.claim(
                f"s{number % 2}", slot=str(number), spec=pb.SandboxSpec(template="base", labels=labels)
            )
        everything = [sandbox.sandbox_id for sandbox in (await allocator.list()).sandboxes]
        assert everything == sorted(everything)
        assert len(everything) == 5
        paged: list[str] = []
        token = ""
        while True:
            page = await allocator.list(page_size=2, page_token=token)
            paged += [sandbox.sandbox_id for sandbox in page.sandboxes]
            token = page.next_page_token
            if not token:
                break
        assert paged == everything
        odd = (await allocator.list(labels={"odd": "1", "all": "yes"})).sandboxes
        assert {sandbox.session_key for sandbox in odd} == {"s1"}
        assert len((await allocator.list(session_key="s0")).sandboxes) == 3
        with pytest.raises(InvalidArgument):
            await allocator.list(page_size=1001)
