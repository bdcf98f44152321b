"""Marks of a sandbox: what a rewind brings back, what it leaves, and what is refused."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.sandboxes.test_overlays import CHANGE, PREPARE, listing

pytestmark = pytest.mark.needs("user namespaces")


async def test_a_rewind_brings_back_files_and_kernels_as_often_as_asked(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        assert not (await box.run_shell_command(PREPARE)).is_error
        await box.run_ipython_cell("tried = []")
        other = await box.kernels.create()
        await other.run("own = 1")
        before = await listing(box)
        mark = await box.mark()
        assert {one.kernel_id for one in mark.kernels} == {"default", other.id}
        for _ in range(2):
            assert not (await box.run_shell_command(CHANGE)).is_error
            await box.run_ipython_cell("tried.append(1)")
            await other.run("own += 1")
            assert await listing(box) != before
            await box.rewind(mark)
            assert await listing(box) == before
            assert (await box.run_ipython_cell("tried")).text == "[]"
            assert (await other.run("own")).text == "1"
        assert not [name for name in (await box.run_shell_command("ls -A")).text.split() if "sandmesh-" in name]
        later = await box.mark(kernels=False)
        assert not later.kernels
        await box.drop(mark)
        for act in (box.rewind, box.drop):
            with pytest.raises(errors.WrongState, match="no mark"):
                await act(mark)
        await box.fs.write("changed", "late")
        await box.rewind(later.mark_id)
        assert await listing(box) == before
        held = await box.mark()
        await other.delete()
        await box.fs.write("changed", "late")
        with pytest.raises(errors.WrongState):
            await box.rewind(held)
        assert await box.fs.read("changed") == "late"


async def test_what_cannot_be_held_is_named_or_refused_and_marks_are_bounded(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.processes.start("sleep 1000")
        await box.run_ipython_cell("import threading; e = threading.Event(); threading.Thread(target=e.wait).start()")
        with pytest.raises(errors.WrongState, match="thread"):
            await box.mark(kernels=True)
        mark = await box.mark()
        assert not mark.kernels
        assert [name for name in mark.not_copied if "sleep 1000" in name]
        assert [name for name in mark.not_copied if name.startswith("kernel default:") and "thread" in name]
        await box.run_ipython_cell("e.set()")
        more = [await box.mark(kernels=False) for _ in range(31)]
        with pytest.raises(OSError, match="at most 32 marks"):
            await box.mark(kernels=False)
        await box.drop(more[0])
        await box.mark(kernels=False)


async def test_what_its_owner_may_not_read_is_marked_and_copied_and_named_where_it_is_refused(
    mesh: Mesh, tmp_path: Path
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    shut = "mkdir -p tree/shut && echo x > tree/shut/file && echo y > tree/file && chmod 0 tree/shut tree/file"
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_shell_command(shut)
        mark = await box.mark()
        await box.run_shell_command("chmod 700 tree/shut; echo z > tree/shut/file; rm -f tree/file")
        await box.rewind(mark)
        found = await box.run_shell_command(
            "stat -c '%a %n' tree/*; chmod 700 tree/shut; cat tree/shut/file; chmod 0 tree/shut"
        )
        assert found.text == "0 tree/file\n0 tree/shut\nx\n"
        async with box.overlay() as branch:
            await branch.run_shell_command("echo new > tree/new")
            assert [one.path for one in await branch.commit()] == ["tree/new"]
        for named, left in (("file", []), ("shut", ["file"])):
            with pytest.raises(PermissionError, match=f"tree: {named} in it may not be read"):
                await box.fs.download_dir("tree", tmp_path / "got", exclude=left)
        await box.fs.download_dir("tree", tmp_path / "got", exclude=["file", "shut"])
    gc.collect()
    assert not unhandled
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["new"]


async def test_a_rewind_ends_another_clients_cell_by_name_and_leaves_its_commands(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with (
        BaseSandboxAsync(base_url=address) as box,
        BaseSandboxAsync(sandbox_id=box.sandbox_id, base_url=address) as other,
    ):
        await box.fs.write("state", "first")
        await box.run_ipython_cell("tried = []")
        mark = await box.mark()
        cell = asyncio.create_task(
            other.run_ipython_cell("tried.append(1); open('begun', 'w').close(); import time; time.sleep(60)")
        )
        command = asyncio.create_task(other.run_shell_command("until [ -e go ]; do sleep 0.05; done; echo went on"))
        await box.run_shell_command("until [ -e begun ]; do sleep 0.05; done; echo second > state")
        await box.rewind(mark)
        ended = await cell
        assert ended.is_error
        assert f"rewound to {mark.kernels[0].mark_id}" in ended.text
        assert (await box.run_ipython_cell("tried, open('state').read()")).text == "([], 'first')"
        await box.fs.write("go", "")
        assert (await command).text.strip() == "went on"


async def test_a_pause_that_keeps_files_only_ends_marks_of_kernels_and_one_in_memory_none(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.fs.write("state", "first")
        await box.run_ipython_cell("tried = []")
        mark = await box.mark()
        await box.fs.write("state", "second")
        await box.pause()
        await box.rewind(mark)  # which wakes it
        assert (await box.run_ipython_cell("tried, open('state').read()")).text == "([], 'first')"
        files = await box.mark(kernels=False)
        await box.fs.write("state", "third")
        await box.pause(mode="files")
        with pytest.raises(errors.WrongState, match="a pause that keeps files only"):
            await box.rewind(mark)
        assert await box.fs.read("state") == "third"
        await box.rewind(files)
        assert await box.fs.read("state") == "first"
