"""Nodes that fail: starts elsewhere, a breaker, silence, and what comes back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.allocator.nodes.circuit_breaker import CircuitBreaker
from tests.unit.allocator.conftest import Allocator, Mesh
from tests.unit.allocator.process_driver import ProcessDriver, Runtime, start_failure
from tests.unit.store.waiting import commands, until


class FlakyDriver(ProcessDriver):
    """A driver that can stop answering."""

    silent = False

    async def get_info(self, request: driver_pb2.GetInfoRequest) -> driver_pb2.GetInfoResponse:
        if self.silent:
            raise RuntimeUnavailable("the node is down")
        return await super().get_info(request)

    async def delete_sandbox(self, request: driver_pb2.DeleteSandboxRequest) -> driver_pb2.DeleteSandboxResponse:
        if self.silent:
            raise RuntimeUnavailable("the node is down")
        return await super().delete_sandbox(request)


@asynccontextmanager
async def two_nodes(
    mesh: Mesh, *generations: str, **settings: object
) -> AsyncGenerator[tuple[Allocator, FlakyDriver, FlakyDriver]]:
    """Run an allocator over two nodes, each with a version of the templates."""
    first, second = (
        FlakyDriver(Runtime(node_id=f"node-{number}", ports=(20000, 20009), generation=generation))
        for number, generation in enumerate(generations or ("1", "1"), 1)
    )
    try:
        async with mesh.over({"one": first, "two": second}, "a", create_pause_seconds=0.01, **settings) as allocator:
            yield allocator, first, second
    finally:
        await first.runtime.close()
        await second.runtime.close()


async def test_a_start_that_fails_on_one_node_succeeds_on_the_other_and_leaves_no_port_behind(mesh: Mesh) -> None:
    async with two_nodes(mesh) as (allocator, first, second):
        first.runtime.failures.append(start_failure())
        second.runtime.failures.append(start_failure())
        sandbox = (await allocator.claim("one", ports=2)).sandbox
        [kept] = [node for node in (first, second) if sandbox.sandbox_id in node.runtime.processes]
        assert kept.runtime.node_id == sandbox.node_id
        held = {f"node-{number}": await mesh.store.hash("ports", f"node-{number}") for number in (1, 2)}
        assert {node for node, ports in held.items() if ports} == {sandbox.node_id}
        retried = [event for event in await allocator.events(sandbox.sandbox_id) if event.kind == "retried"]
        assert retried
        assert all("no space left" in event.reason for event in retried)


async def test_a_node_whose_starts_keep_failing_is_passed_over_while_another_has_room(mesh: Mesh) -> None:
    async with two_nodes(mesh, breaker_failures=2) as (allocator, first, _):
        first.runtime.failures += [start_failure() for _ in range(20)]
        sandboxes = [(await allocator.claim(f"s{number}")).sandbox for number in range(6)]
        assert {sandbox.node_id for sandbox in sandboxes} == {"node-2"}
        assert len(first.runtime.failures) >= 17
        health = await allocator.health()
        assert [node.in_rotation for node in health.nodes] == [False, True]
        [trouble] = health.troubles
        assert trouble.node_id == "node-1"
        assert "starts keep failing" in trouble.detail
        assert "no space left" in trouble.detail


async def test_of_two_drivers_that_say_they_are_one_node_the_second_is_left_out(mesh: Mesh) -> None:
    first, second = (FlakyDriver(Runtime(node_id="same", ports=(20000, 20009))) for _ in range(2))
    try:
        async with mesh.over({"one": first, "two": second}, recovery_seconds=0.1) as allocator:
            await until(lambda: mesh.store.is_open)
            for number in range(3):
                await allocator.claim(f"s{number}")
            assert not second.runtime.processes
            [trouble] = (await allocator.health()).troubles
            assert "both report that they are node same" in trouble.detail
    finally:
        await first.runtime.close()
        await second.runtime.close()


async def test_nodes_with_another_version_of_a_template_do_not_serve_the_same_request(mesh: Mesh) -> None:
    async with two_nodes(mesh, "1", "newer") as (allocator, first, second):
        places = {(await allocator.claim(f"s{number}")).sandbox.node_id for number in range(4)}
        assert len(places) == 1
        assert bool(first.runtime.processes) != bool(second.runtime.processes)


def test_a_breaker_opens_after_failures_in_a_row_and_closes_with_a_success() -> None:
    breaker = CircuitBreaker(2, 60.0)
    breaker.failed()
    assert not breaker.is_open
    breaker.failed()
    assert breaker.is_open
    breaker.succeeded()
    assert not breaker.is_open


async def test_sandboxes_of_a_silent_node_are_lost_and_what_it_still_has_goes_when_it_is_back(mesh: Mesh) -> None:
    fast: dict[str, object] = {
        "health_seconds": 0.02,
        # What holds up this machine for so long holds up all nodes.
        "node_grace_seconds": 1.5,
        "orphan_grace_seconds": 0,
        "reconcile_seconds": 0.1,
    }
    async with two_nodes(mesh, **fast) as (allocator, first, second):
        sandboxes = [(await allocator.claim(f"s{number}")).sandbox for number in range(4)]
        lost = [sandbox for sandbox in sandboxes if sandbox.node_id == "node-1"]
        first.silent = True
        for one in lost:
            record = await allocator.until_state(one.sandbox_id, pb.SANDBOX_STATE_LOST)
            assert "node-1" in record.state_reason
        fresh = [(await allocator.claim(f"new{number}")).sandbox.node_id for number in range(3)]
        assert set(fresh) == {"node-2"}
        for one in lost:
            await allocator.release(one)
        await allocator.until_used(5)

        async def all_gone() -> bool:
            return not await commands(mesh.store).zcard(mesh.store.key("stopping"))

        await until(all_gone)
        assert len(first.runtime.processes) == len(lost)
        first.silent = False
        await until(lambda: not first.runtime.processes)
        assert len(second.runtime.processes) == 5
