"""Programs that adapters of frameworks run: what they write does not fill the memory of who runs them."""

from __future__ import annotations

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.integrations import programs
from sandmeshd.mesh import Mesh
from tests.unit.store.waiting import until

MOST = 1_000_000


async def test_the_beginning_of_a_long_output_is_kept_with_what_was_left_out(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_OUTPUT", MOST)
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        done = await programs.run_program(box, ["/bin/sh", "-c", "yes x | head -c 5000000; echo why >&2; exit 3"])
        assert done.result.exit_code == 3
        assert done.stdout == b"x\n" * (MOST // 2) + b"\n[4000000 further bytes were left out]\n"
        assert done.stderr == b"why\n"


async def test_a_file_without_an_end_is_refused_and_its_reader_ends(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_DATA", MOST)
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        with pytest.raises(OSError, match="it has more than 1000000 bytes"):
            await programs.run_script(box, 'exec cat -- "$1"', "/dev/zero")

        async def is_ended() -> bool:
            return not [process for process in await box.processes.list() if process.running]

        await until(is_ended, 30)
        await box.fs.write("whole", b"x" * MOST)
        assert len(await programs.run_script(box, 'exec cat -- "$1"', "whole")) == MOST
