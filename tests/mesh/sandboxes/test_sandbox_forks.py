"""Forks of sandboxes: what they have of the original, and what is their own."""

from __future__ import annotations

import asyncio
import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandbox, BaseSandboxAsync, Secret, errors
from sandmesh.inputs import Options, Snapshot
from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.needs("user namespaces")


async def test_forks_begin_with_the_files_and_go_their_own_ways(mesh: Mesh) -> None:
    options: Options = {"env": {"WHO": "one"}, "labels": {"team": "red"}, "limits": {"memory": "400MiB"}}
    address = mesh.addresses[0]
    async with MeshAsync(address) as client, BaseSandboxAsync(base_url=address, **options) as box:
        await box.fs.write("data/kept.txt", "kept")
        await box.run_ipython_cell("x = 41")
        await box.kernels.create(kernel_id="second")
        process = await box.processes.start(["sleep", "3600"])
        children = await box.fork(count=8, kernels=False)
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
        left = [sandbox.sandbox_id for sandbox in await client.sandboxes.list(labels={"team": "red"}) if sandbox.in_use]
        assert left == [box.sandbox_id]


_PREPARE = """
import os, random, socket, sys
import numpy as np
array, told = np.arange(1_000_000), {"by": "original"}
random.seed(1), np.random.seed(1)
os.environ["SET_BY_CODE"] = "kept"
notes = open("notes.txt", "w+"); notes.write("first"); notes.flush()
pair = socket.socketpair()
def describe():
    return told["by"], int(array.sum()), os.environ["SET_BY_CODE"], os.path.exists("/workspace/notes.txt")
"""
_LOOK = """
told["by"] = WHO; array[0] = NUMBER
notes.write(WHO); notes.flush()
import colorsys, subprocess, threading
ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
with open("/proc/self/status") as file:
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
caps = {status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")}
thread = threading.Thread(target=print, args=("from a thread",)); thread.start(); thread.join()
try:
    pair[0].send(b"x"); sent = True
except OSError:
    sent = False
print(describe(), "sleep 3600" in ps, status["NoNewPrivs"], status["Seccomp"], caps == {"0" * 16}, sent)
print(random.random(), np.random.rand(), os.urandom(4).hex())
"""


async def test_forks_continue_the_kernels_each_in_its_own_sandbox(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell(_PREPARE)
        second = await box.kernels.create(kernel_id="second")
        await second.run("y = 'of the second'")
        await box.kernels.create(kernel_id="unused")
        process = await box.processes.start(["sleep", "3600"])
        busy = asyncio.create_task(box.run_ipython_cell("import time; time.sleep(0.5); slept = True"))
        children = await box.fork(count=3, kernels=True)
        try:
            await busy
            assert children.error is None
            assert any("unix socket" in name for name in children.not_copied)
            assert any("sleep" in name for name in children.not_copied)
            assert not any("variables" in name for name in children.not_copied if "unused" not in name)
            unique: set[str] = set()
            for number, child in enumerate(children):
                cell = _LOOK.replace("WHO", repr(f"child {number}")).replace("NUMBER", str(number))
                facts, numbers = (
                    (await child.run_ipython_cell(cell)).text.replace("from a thread\n", "").splitlines()[:2]
                )
                expected = (f"child {number}", 499_999_500_000 + number, "kept", True)
                assert facts == f"{expected} False 1 2 True False"
                unique |= {*numbers.split()}
                assert (await child.fs.read("notes.txt")) == f"firstchild {number}"
                assert (await (await child.kernels.get("second")).run("y")).text == "'of the second'"
            assert len(unique) == 3 * len(children)
            (grandchild,) = await children[0].fork()
            async with grandchild:
                assert (await grandchild.run_ipython_cell("told['by']")).text == "'child 0'"
            assert (await box.run_ipython_cell("told['by'], slept")).text == "('original', True)"
            assert await box.fs.read("notes.txt") == "first"
        finally:
            await asyncio.gather(*(one.close() for one in children))
            await process.kill()


async def test_kernels_that_cannot_be_copied_are_refused_or_named(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        thread = "import threading; end = threading.Event(); threading.Thread(target=end.wait, name='mine').start()"
        await box.run_ipython_cell(thread)
        with pytest.raises(errors.WrongState, match=r"Kernel default: .*thread.*mine"):
            await box.fork(kernels=True)
        children = await box.fork()
        async with children[0] as child:
            assert any("mine" in name for name in children.not_copied)
            assert "NameError" in (await child.run_ipython_cell("end")).text
        await box.run_ipython_cell("end.set()")
        slow = asyncio.create_task(box.run_ipython_cell("import time; time.sleep(6)"))
        with pytest.raises(errors.WrongState, match="A cell ran in the kernel"):
            await box.fork(kernels=True, timeout=1)
        await slow
        assert not await box.list_snapshots()


async def test_forks_that_are_cut_off_or_lose_their_kernel_leave_nothing_behind(mesh: Mesh) -> None:
    address, chance = mesh.addresses[0], random.Random(7)  # noqa: S311 - the same each time
    async with MeshAsync(address) as client, BaseSandboxAsync(base_url=address, labels={"team": "cut"}) as box:
        for attempt in range(6):
            filled = await box.run_ipython_cell("import os; x, big = 41, bytearray(b'a') * 60_000_000; os.getpid()")
            forking = asyncio.create_task(box.fork(2, kernels=True))
            await asyncio.wait([forking], timeout=chance.uniform(0, 0.8))
            if attempt % 2:
                # The fork is refused, or was made by then.
                await box.run_shell_command(f"kill -KILL {filled.text.split()[-1]}")
            else:
                forking.cancel()
            (forked,) = await asyncio.gather(forking, return_exceptions=True)
            if not isinstance(forked, BaseException):
                await asyncio.gather(*(one.close() for one in forked))
            else:
                assert isinstance(forked, asyncio.CancelledError | errors.SandmeshError), forked
        (whole,) = await box.fork(kernels=False)
        await whole.close()
        assert not (await client.snapshots.list()).snapshots
        assert [
            sandbox.sandbox_id for sandbox in await client.sandboxes.list(labels={"team": "cut"}) if sandbox.in_use
        ] == [box.sandbox_id]
        assert _held_memory() == []
        left = await box.run_shell_command("ls -l /proc/*/fd 2>/dev/null | grep -c memfd:kernel")
        assert left.text.strip() == "0"


async def test_a_fork_that_is_cut_off_while_its_snapshot_is_deleted_leaves_no_sandbox(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MeshAsync(mesh.addresses[0]) as client, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        deletes, delete = asyncio.Event(), box.delete_snapshot

        async def wait_and_delete(snapshot: str | Snapshot) -> None:
            deletes.set()
            await asyncio.sleep(0.1)
            await delete(snapshot)

        monkeypatch.setattr(box, "delete_snapshot", wait_and_delete)
        forking = asyncio.create_task(box.fork(2))
        await deletes.wait()
        forking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forking
        used = [sandbox.sandbox_id for sandbox in await client.sandboxes.list() if sandbox.in_use]
        assert used == [box.sandbox_id]


def _held_memory() -> list[str]:
    """Return the files of kernels' memory that this process, in which the driver runs, has open."""
    return [name for fd in Path("/proc/self/fd").iterdir() if "memfd:kernel" in (name := _target(fd))]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


async def test_forks_beyond_a_quota_are_those_that_fit_and_why_there_are_no_more() -> None:
    async with run_mesh() as mesh, MeshAsync(mesh.addresses[0]) as admin:
        await admin.quotas.set({"sandboxes": 3}, project="default")
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            children = await box.fork(4)
            assert len(children) == 2
            assert isinstance(children.error, errors.QuotaExceeded)
            with pytest.raises(errors.QuotaExceeded):
                await box.fork()
            await asyncio.gather(*(child.close() for child in children))


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


def _run_the_pages(address: str) -> None:
    open_box = partial(BaseSandbox, base_url=address)
    with open_box() as box:
        box.fs.write("data.csv", "price,name\n1,a\n,b\n")
        names: dict[str, Any] = {"box": box}
        for block in _blocks("forks.md"):
            exec(block, names)  # noqa: S102 - what the page tells its readers to run
        assert names["one"].run("len(frame)").text == "1"
        assert names["two"].run("len(frame)").text == "2"
        assert box.run_ipython_cell("list(frame.columns), scores").text == "(['price', 'name'], [16])"
        assert (len(names["branches"]), names["branches"].error) == (2, None)
    (pause,) = (block for block in _blocks("drivers.md") if "box.pause()" in block)
    with open_box() as box:
        box.run_ipython_cell("x = 41")
        made: list[BaseSandbox] = []

        def attach(**options: Any) -> BaseSandbox:
            # The page's own box is not opened, since it is no program of its own there.
            made.append(open_box(**options))
            return box

        exec(pause, {"BaseSandbox": attach})  # noqa: S102 - as above
        assert len(made) == 1
        assert box.run_ipython_cell("x + 1").text == "42"


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


async def test_the_programs_of_the_pages_run_as_they_stand_there(mesh: Mesh) -> None:
    await asyncio.to_thread(_run_the_pages, mesh.addresses[0])
