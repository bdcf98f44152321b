"""What single sandboxes use, on the page for Prometheus: of so many at most, without keeping or waking any."""

from __future__ import annotations

import asyncio
import subprocess
import urllib.request

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync
from tests.mesh.conftest import run_mesh
from tests.mesh.sandboxes.test_metrics import read

pytestmark = pytest.mark.needs("user namespaces")

MEGABYTES = 150
HOLD = f"import time; data = bytearray({MEGABYTES} << 20); print('held', flush=True); time.sleep(1000)"
MOST = 2
OFTEN = {"sandbox_metrics": MOST, "sandbox_metrics_seconds": 0}


async def _text(page: str) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(f"{page}/metrics", timeout=10) as answer:  # noqa: S310 - our own address
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


def _of(found: dict[str, float], name: str) -> dict[str, float]:
    """Return the values of a metric by sandbox."""
    start = f"sandmesh_sandbox_{name}{{"
    return {key.partition("sandbox=")[2].rstrip("}"): value for key, value in found.items() if key.startswith(start)}


async def test_each_sandbox_up_to_the_limit_has_what_it_uses() -> None:
    async with run_mesh(gateway=OFTEN) as mesh:
        address, [page] = mesh.addresses[0], await mesh.http.open()
        async with (
            BaseSandboxAsync(base_url=address) as first,
            BaseSandboxAsync(base_url=address) as second,
            MeshAsync(address) as client,
        ):
            held = await first.processes.start(["python3", "-c", HOLD])
            await held.wait_for_log("held")
            await second.run_shell_command("true")
            text = await _text(page)
            found = read(text)
            memory = _of(found, "memory_bytes")
            assert set(memory) == {first.sandbox_id, second.sandbox_id}
            assert memory[first.sandbox_id] - memory[second.sandbox_id] > MEGABYTES << 19
            assert _of(found, "processes")[first.sandbox_id] > _of(found, "processes")[second.sandbox_id] >= 0
            assert _of(found, "cpu_seconds")[first.sandbox_id] > 0
            assert set(_of(found, "disk_bytes")) == set(_of(found, "sent_bytes")) == set(memory)
            assert found["sandmesh_sandboxes_unmeasured"] == 0
            command = ["promtool", "check", "metrics"]
            checked = subprocess.run(  # noqa: ASYNC221 - short
                command, input=text, capture_output=True, text=True, timeout=60, check=False
            )
            assert "sandmesh_sandbox" not in checked.stderr + checked.stdout
            assert checked.returncode in (0, 3)  # 3 is what it advises on, of older metrics
            # Beyond the limit nothing is shown, but counted, and the choice stays.
            async with BaseSandboxAsync(base_url=address) as third:
                await third.run_shell_command("true")
                found = read(await _text(page))
                assert set(_of(found, "cpu_cores")) == set(memory)
                assert found["sandmesh_sandboxes_unmeasured"] == 1
                # One that is paused is not asked, and stays paused.
                await client.sandboxes.pause(first.sandbox_id)
                found = read(await _text(page))
                assert set(_of(found, "cpu_cores")) == {second.sandbox_id, third.sandbox_id}
                assert (await client.sandboxes.get(first.sandbox_id)).state == "PAUSED"
        while _of(found := read(await _text(page)), "cpu_cores"):
            pass
        assert found["sandmesh_sandboxes_unmeasured"] == 0


async def test_being_measured_is_no_use_of_a_sandbox() -> None:
    async with run_mesh(gateway={**OFTEN, "activity_seconds": 0.2}, allocator={"sweep_seconds": 0.3}) as mesh:
        address, [page] = mesh.addresses[0], await mesh.http.open()
        box = await BaseSandboxAsync(base_url=address, idle_timeout=5).start()
        await box.run_shell_command("true")
        measured = 0
        async with asyncio.timeout(30), MeshAsync(address) as client:
            while any(one.sandbox_id == box.sandbox_id for one in await client.sandboxes.list()):
                measured += box.sandbox_id in _of(read(await _text(page)), "cpu_cores")
        assert measured > 2
        await box.close()


async def test_a_mesh_shows_no_single_sandbox_unless_it_is_told_to() -> None:
    async with run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        [page] = await mesh.http.open()
        await box.run_shell_command("true")
        text = await _text(page)
        assert box.sandbox_id not in text
        assert "sandmesh_sandboxes_unmeasured" not in text
