"""How far a call goes: the functions that it enters are counted."""

from __future__ import annotations

import asyncio

from benchmarks import call_path

# With room for a function or two each, so that the bound does not decide where a line of code belongs. Kernels' loops
# go on between cells, and packages that were installed meanwhile are looked for: five functions more than without.
MOST = {"client": 38, "gateway": 25, "agent": 46, "kernel": 24}
MOST_FILES = 33


async def test_a_call_enters_few_functions_in_few_files() -> None:
    async with asyncio.timeout(120):
        path = await call_path.record()
    longer = {process: entered for process, entered in path.items() if len(entered) > MOST[process]}
    assert not longer
    assert call_path.files(path) <= MOST_FILES
    assert min(map(len, path.values())) > 1
