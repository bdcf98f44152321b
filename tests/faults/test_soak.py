"""What services hold does not grow with use. The full form is `make reliability`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.soak import Bounds, Course, Sample, soak, trends

# A short run is all warming up: a process may grow by what it imports late and what its allocator keeps.
SHORT = Bounds(memory_mib=12.0, descriptors=6.0, keys=200.0)


@pytest.mark.timeout(300)
async def test_a_few_hundred_cycles_leave_memory_descriptors_and_keys_as_they_were(tmp_path: Path) -> None:
    soaked = await soak(tmp_path, Course(cycles=300, seconds=60.0, every=1.0))
    assert not soaked.errors
    assert not soaked.wrong_output
    assert not [trend for trend in trends(soaked.samples, SHORT) if not trend.flat]
    assert not soaked.left


def test_a_leak_is_no_flat_line() -> None:
    def held(descriptors: int) -> Sample:
        return Sample(0.0, 0, {"gateway": 50.0 + descriptors}, {"gateway": descriptors}, {"tomb": 10})

    growing = trends([held(number) for number in range(80)], Bounds())
    assert {trend.what: trend.flat for trend in growing} == {"memory": False, "descriptors": False, "keys": True}
    assert all(trend.flat for trend in trends([held(7)] * 80, Bounds()))
