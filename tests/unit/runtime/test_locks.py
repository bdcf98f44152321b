"""The lock of a mesh's process, and those who look whether somebody has it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from sandmesh.errors import AlreadyExists
from sandmeshd.runtime.locks import held, holder, is_free


async def test_a_lock_is_one_process_s_until_its_block_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    async with held(lock):
        assert (is_free(lock), holder(lock)) == (False, os.getpid())
        with pytest.raises(AlreadyExists, match="another mesh holds"):
            async with held(lock):
                pass
    assert (is_free(lock), holder(lock)) == (True, None)


async def test_who_only_looks_keeps_nobody_from_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    looking = os.open(lock, os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    # As is_free has it for a moment.
    asyncio.get_running_loop().call_later(0.005, os.close, looking)
    async with held(lock):
        assert holder(lock) == os.getpid()
