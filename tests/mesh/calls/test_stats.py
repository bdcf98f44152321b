"""What a sandbox uses, as its box, a command and the agent say it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync, SandboxStats
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.asyncio(loop_scope="module")]

MEGABYTES = 150
HOLD = f"import time; data = bytearray({MEGABYTES} << 20); print('held', flush=True); time.sleep(1000)"
BURN = "import time\nwhile time.process_time() < 1.0: pass"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


async def test_a_box_says_what_its_processes_use(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        before = await box.stats()
        assert before.history == ()
        assert before.cores >= 1
        assert before.memory_total_bytes > 1 << 20
        held = await box.processes.start(["python3", "-c", HOLD])
        await held.wait_for_log("held")
        await box.fs.write("big", bytes(5 << 20))
        await box.run_shell_command("ln big link; ln -s / loop")
        after = await box.stats()
        assert MEGABYTES << 20 <= after.memory_bytes - before.memory_bytes < (MEGABYTES + 100) << 20
        assert after.processes > before.processes
        assert before.disk_bytes is not None
        assert after.disk_bytes is not None
        assert 5 << 20 <= after.disk_bytes - before.disk_bytes < 6 << 20
        assert [sample.time for sample in after.history] == [before.time]
        await held.kill()
        await box.run_shell_command(f"python3 -c '{BURN}'")
        burnt = await box.stats()
        # Time of a process that has ended counts.
        assert burnt.cpu_seconds - after.cpu_seconds >= 1.0
        assert 0 < burnt.cpu <= burnt.cores + 1
        assert burnt.memory_bytes < after.memory_bytes - (MEGABYTES << 19)


async def test_a_sync_box_says_it_too(mesh: Mesh) -> None:
    def read() -> SandboxStats:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            return box.stats()

    found = await asyncio.to_thread(read)
    assert (found.sent_bytes, found.received_bytes) == (0, 0)


async def test_what_user_code_calls_its_processes_does_not_break_it(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        named = "import time; open('/proc/self/comm', 'w').write(') 1 2 ('); print('up', flush=True); time.sleep(1000)"
        process = await box.processes.start(["python3", "-c", named])
        await process.wait_for_log("up")
        assert (await box.stats()).processes > 0
        assert (await box.stats()).cpu_seconds < 1000


async def test_files_that_are_too_deep_or_change_break_nothing(mesh: Mesh) -> None:
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        assert not (await box.run_shell_command(f'python3 -c "{deep}"')).is_error
        found = await box.stats()
        assert found.disk_bytes is None or found.disk_bytes > 0
