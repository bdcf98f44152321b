"""Forks of sandboxes: what they have of the original, and what is their own."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh import BaseSandbox, BaseSandboxAsync, Secret, errors
from sandmesh.inputs import Options
from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = pytest.mark.needs("user namespaces")


async def test_forks_begin_with_the_files_and_go_their_own_ways(mesh: Mesh) -> None:
    options: Options = {"env": {"WHO": "one"}, "labels": {"team": "red"}, "limits": {"memory": "400MiB"}}
    address = mesh.addresses[0]
    async with MeshAsync(address) as client, BaseSandboxAsync(base_url=address, **options) as box:
        await box.fs.write("data/kept.txt", "kept")
        await box.run_ipython_cell("x = 41")
        process = await box.processes.start(["sleep", "3600"])
        children = await box.fork(count=8)
        try:
            assert children.error is None
            assert "kernel default: its variables" in children.not_copied
            assert any("sleep" in name for name in children.not_copied)
            assert len({box.sandbox_id, *(one.sandbox_id for one in children)}) == 9
            for number, child in enumerate(children):
                await child.fs.write("data/kept.txt", f"changed by {number}")
            for number, child in enumerate(children):
                found = await child.run_shell_command("cat data/kept.txt; echo; printenv WHO")
                assert found.text.split("\n")[:2] == [f"changed by {number}", "one"]
            assert await box.fs.read("data/kept.txt") == "kept"
            assert (await box.run_ipython_cell("x + 1")).text == "42"
            infos = [await client.sandboxes.get(one.sandbox_id) for one in children]
            assert {info.labels["team"] for info in infos} == {"red"}
            assert {info.limits.memory for info in infos} == {400 * 2**20}
            assert len({info.lease.fencing_token for info in infos if info.lease}) == 8
            assert len({info.session_key for info in infos}) == 8
            assert not (await client.snapshots.list()).snapshots
        finally:
            await asyncio.gather(*(one.close() for one in children))
            await process.kill()
        left = [one.sandbox_id for one in await client.sandboxes.list(labels={"team": "red"}) if one.in_use]
        assert left == [box.sandbox_id]


async def test_forks_beyond_a_quota_are_those_that_fit_and_why_there_are_no_more() -> None:
    async with run_mesh() as mesh, MeshAsync(mesh.addresses[0]) as admin:
        await admin.quotas.set({"sandboxes": 3}, project="default")
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            children = await box.fork(4)
            assert len(children) == 2
            assert isinstance(children.error, errors.QuotaExceeded)
            with pytest.raises(errors.QuotaExceeded):
                await box.fork()
            await asyncio.gather(*(one.close() for one in children))


async def test_what_cannot_be_forked_says_why(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address) as box:
        for count in (0, 101, True):
            with pytest.raises(errors.InvalidArgument, match="whole number from 1 to 100"):
                await box.fork(count)
        await box.pause()
        with pytest.raises(errors.WrongState, match="is paused"):
            await BaseSandboxAsync.snapshot(box)
        async with BaseSandboxAsync(box.sandbox_id, base_url=address) as attached:
            (child,) = await attached.fork()
            async with child:
                assert (await child.run_ipython_cell("1")).text == "1"
    secrets = {"KEY": Secret(hosts=["example.com"], value="a-value-of-some-length")}
    async with BaseSandboxAsync(base_url=address, secrets=secrets, network=["example.com"]) as box:
        async with BaseSandboxAsync(box.sandbox_id, base_url=address) as attached:
            with pytest.raises(errors.WrongState, match="only the box that created the sandbox has the value"):
                await attached.fork()
        (child,) = await box.fork()
        async with child:
            own, other = [(await one.run_shell_command("printenv KEY")).text for one in (box, child)]
            assert own != other
            assert "a-value" not in own + other


def _fork_without_a_loop(address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.fs.write("kept.txt", "kept")
        with box.fork()[0] as child:
            assert child.fs.read("kept.txt") == "kept"
            assert child.sandbox_id != box.sandbox_id


async def test_programs_without_an_event_loop_fork_too(mesh: Mesh) -> None:
    await asyncio.to_thread(_fork_without_a_loop, mesh.addresses[0])
