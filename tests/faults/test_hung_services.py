"""Services that hang, and a mesh whose only driver is gone: what is asked goes elsewhere, or is told why it cannot."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import MeshUnavailable
from tests.faults.doctor import Finding, wait_for_finding
from tests.faults.proxy import stalling
from tests.faults.test_lost_driver import fell_silent
from tests.faults.world import open_world


@pytest.mark.timeout(240)
async def test_an_allocator_that_hangs_is_left_for_the_other_and_no_create_or_cell_fails(tmp_path: Path) -> None:
    async with open_world(tmp_path, count=2) as world:
        first, second = world.gateways
        for name in world.names("allocator"):
            async with (
                BaseSandboxAsync(base_url=first) as kept,
                BaseSandboxAsync(base_url=second, sandbox_id=kept.sandbox_id) as other,
            ):
                await kept.run_ipython_cell("kept = 1")
                world.programs[name].signal(signal.SIGSTOP)
                try:
                    # The second gateway must first ask an allocator where the sandbox is.
                    assert (await other.run_ipython_cell("print(kept)")).stdout == "1\n"
                    async with BaseSandboxAsync(base_url=world.addresses(), timeout=60) as box:
                        assert (await box.run_ipython_cell("print(6 * 7)")).stdout == "42\n"
                    assert (await kept.run_ipython_cell("print(kept)")).stdout == "1\n"
                finally:
                    world.programs[name].signal(signal.SIGCONT)


@pytest.mark.timeout(240)
async def test_the_doctor_names_a_gateway_a_driver_or_a_store_that_hangs(tmp_path: Path) -> None:
    async with open_world(tmp_path, count=2) as world:
        pids = {
            f"gateway {world.gateways[0]}": world.programs["gateway1"].pid or 0,
            "node": world.programs["driver1"].pid or 0,
            "store": await world.store.find_pid(),
        }
        for part, pid in pids.items():

            def hangs(found: Finding, part: str = part) -> bool:
                return found.name.startswith(part) and found.health != "ok" and "answer" in found.seen

            os.kill(pid, signal.SIGSTOP)
            try:
                await wait_for_finding(world, hangs)
            finally:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(120)
async def test_with_the_only_driver_gone_a_create_names_the_driver_and_not_the_mesh(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        await world.programs["driver1"].kill()
        await fell_silent(world)
        async with asyncio.timeout(60):
            with pytest.raises(MeshUnavailable, match=r"driver driver1 does not answer .*start its driver"):
                await BaseSandboxAsync(base_url=world.addresses(), timeout=10).start()


@pytest.mark.timeout(180)
async def test_a_gateway_cut_off_from_the_allocator_names_what_does_not_answer_and_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    relay = tmp_path / "relay"
    async with open_world(tmp_path) as world:
        services = world.settings.paths.services
        async with stalling(relay, services / "allocator1") as link:
            world.add("gateway2", "gateway", "--allocator", f"unix://{relay}", "--broker", f"unix://{services}/broker1")
            await world.programs["gateway2"].start()
            first, second = world.gateways
            async with (
                BaseSandboxAsync(base_url=first) as box,
                BaseSandboxAsync(base_url=second, sandbox_id=box.sandbox_id) as other,
            ):
                await box.run_ipython_cell("kept = 1")
                link.close()
                with pytest.raises(MeshUnavailable):
                    await other.run_ipython_cell("print(kept)")
                assert (await box.run_ipython_cell("print(kept)")).stdout == "1\n"
                link.open()
                assert (await other.run_ipython_cell("print(kept)")).stdout == "1\n"
