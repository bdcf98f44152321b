"""Async tests end by themselves when what they wait for does not come."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HANGS = """
import asyncio
import pytest

@pytest.fixture
async def opened():
    yield
    print("closed in order")

@pytest.mark.timeout(3)
async def test_that_hangs(opened):
    await asyncio.Event().wait()
"""


def test_a_wait_that_does_not_end_fails_where_it_waits_and_fixtures_are_closed(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    options = ("-p", "tests.timeouts", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path))
    command = (sys.executable, "-m", "pytest", *options, str(tmp_path))
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended.stdout
    assert "TimeoutError" in ended.stdout
    assert "asyncio.Event().wait()" in ended.stdout
    assert "closed in order" in ended.stdout
