"""A storm of browsers. SANDMESH_TEST_BROWSER_CYCLES has it run longer: 200 are what docs/reliability.md speaks of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.browser_storm import storm_browsers

CYCLES = int(os.environ.get("SANDMESH_TEST_BROWSER_CYCLES", "20"))
SECONDS = 60.0 + 30.0 * CYCLES

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.needs("chromium"), pytest.mark.timeout(SECONDS)]


async def test_browsers_killed_at_random_leave_nothing(tmp_path: Path) -> None:
    storm = await storm_browsers(tmp_path, CYCLES)
    assert sum(storm.outcomes.values()) == CYCLES
    assert storm.outcomes["used"] > CYCLES // 3, storm
    assert not storm.left, storm
