"""What a create and a cell ask of the kernel and of the store does not grow unnoticed."""

from __future__ import annotations

import asyncio
import sys

import pytest
from benchmarks import operations

# On a busy machine a count has what timers did meanwhile: a step that a create or a cell takes is in each count.
MOST_COUNTS = 3


@pytest.mark.needs("root", "strace", "user namespaces", "control groups")
async def test_a_create_and_a_cell_take_no_more_operations_than_recorded() -> None:
    recorded = operations.recorded()
    if not recorded:
        pytest.skip(f"nothing is recorded for Python {sys.version}: python -m benchmarks.operations --write")
    grown: list[str] = []
    for _ in range(MOST_COUNTS):
        async with asyncio.timeout(120):
            counted = await operations.count()
        assert counted["create"]["processes started"] >= 1, "strace saw no create"
        assert counted["create"]["store commands"] >= 1, "the store saw no create"
        assert counted["cell"]["files looked up"] >= 1, "strace saw no cell"
        grown = operations.grown(recorded, counted)
        if not grown:
            return
    assert not grown, "python -m benchmarks.operations --write records them, if they are meant:\n" + "\n".join(grown)


def test_a_count_that_grows_is_named() -> None:
    before = {"create": {"mounts": 18.0, "files opened": 150.0}, "cell": {"mounts": 0.0}}
    assert not operations.grown(before, {"create": {"mounts": 18.0, "files opened": 153.0}, "cell": {"mounts": 0.03}})
    now = {"create": {"mounts": 19.0, "files opened": 155.0}, "cell": {"mounts": 1.0}}
    assert operations.grown(before, now) == [
        "mounts of a create: 18 before, 19 now",
        "files opened of a create: 150 before, 155 now",
        "mounts of a cell: 0 before, 1 now",
    ]
