"""Sandboxes with images whose driver is killed leave nothing: the short form of `tests.faults.image_cycles`."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.image_cycles import run

pytestmark = [pytest.mark.needs("root", "busybox"), pytest.mark.timeout(300)]


async def test_no_mount_folder_or_range_of_ids_is_left_of_sandboxes_whose_driver_was_killed() -> None:
    assert await asyncio.to_thread(run, cycles=9, kills=2) == []
