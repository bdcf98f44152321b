"""Limits as a user states them and sees them: refused, enforced, told."""

from __future__ import annotations

import asyncio
import json

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.cli.test_up import sandmesh
from tests.mesh.conftest import MeshMaker


@pytest.mark.needs("control groups")
async def test_out_of_memory_ends_the_call_and_not_the_sandbox(mesh: Mesh) -> None:
    limits = {"memory": "64MiB", "cpus": 1.5, "pids": 100, "file_size": "1GiB", "disk": "30MiB"}
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits=limits) as box:
        ended = await box.run_ipython_cell("held = bytearray(256 << 20)")
        assert ended.is_error
        assert (ended["meta"]["reason"], ended.fault) == ("OUT_OF_MEMORY", "limit")
        assert "64 MiB" in ended.text
        assert "fresh" in ended.text
        assert (await box.run_ipython_cell("6 * 7")).text == "42"
        assert (await box.run_shell_command("df --output=size -B1 . | tail -1")).stdout.strip() == str(30 << 20)
        ended = await box.run_shell_command("python3 -c 'held = bytearray(256 << 20)'")
        assert ended["meta"]["reason"] == "OUT_OF_MEMORY"
        async with asyncio.timeout(60):
            while "out_of_memory" not in [event["kind"] for event in await box.list_events()]:
                pass
        assert "64 MiB" in ended.text
        assert (await box.run_shell_command("echo on")).stdout == "on\n"


async def test_inspect_shows_what_holds_and_what_does_not(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address, limits={"pids": 50, "file_size": "1MiB"}) as box:
        _, out, _ = await sandmesh("inspect", box.sandbox_id, "--base-url", address)
    seen = json.loads(out)
    assert seen["spec"]["limits"] == {"pids": 50, "file_bytes": "1048576"}
    assert seen["enforced"]["memory"] == "no"
    assert seen["enforced"]["file"] == "rlimit"
    assert seen["enforced"]["pids"] in {"rlimit", "cgroup v1", "cgroup v2"}


async def test_a_pool_does_not_get_around_a_limit(make_mesh: MeshMaker) -> None:
    async with make_mesh(pools={"base": 1}) as mesh:
        async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"file_size": 1000}) as box:
            assert (await box.run_shell_command("head -c 9999 /dev/zero > f; stat -c %s f")).stdout == "1000\n"
        with pytest.raises(errors.CapabilityMissing, match="disk"):
            async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"disk": 1 << 60}):
                pass


async def test_the_command_takes_limits_and_says_what_one_looks_like(mesh: Mesh) -> None:
    where = ("--base-url", mesh.addresses[0])
    big = ("--", "bash", "-c", "head -c 9999 /dev/zero > f; stat -c %s f")
    _, out, _ = await sandmesh("run", *where, "--limit", "file_size=1kB", "--limit", "pids=50", *big)
    assert out == "1000\n"
    code, _, said = await sandmesh("run", *where, "--limit", "memory=lots", "--", "true", check=False)
    assert code != 0
    assert "512MiB" in said
    code, _, said = await sandmesh("run", *where, "--limit", "cpus=half", "--", "true", check=False)
    assert code != 0
    assert "number" in said
