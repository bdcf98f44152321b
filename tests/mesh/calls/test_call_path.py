"""How far a call goes: the functions that it enters are counted."""

from __future__ import annotations

import asyncio

from benchmarks import call_path

MOST = {"client": 32, "gateway": 22, "agent": 43, "kernel": 18}
MOST_FILES = 28


async def test_a_call_enters_few_functions_in_few_files() -> None:
    async with asyncio.timeout(120):
        path = await call_path.record()
    longer = {process: entered for process, entered in path.items() if len(entered) > MOST[process]}
    assert not longer
    assert call_path.files(path) <= MOST_FILES
    assert min(map(len, path.values())) > 1
