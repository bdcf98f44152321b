"""A long call over a link that its cloud cuts again and again, as clouds do at a function's time-out."""

from __future__ import annotations

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, Output
from tests.clouds.authorities import trusted
from tests.clouds.function_compute import KEYS, stand_in
from tests.mesh.conftest import run_mesh
from tests.unit.agent.sandbox import prepare_ground

# `make cloud-hour` gives 3600 s, cut every 30.
SECONDS = int(os.environ.get("SANDMESH_TEST_CLOUD_SECONDS", "12"))
CUT_SECONDS = float(os.environ.get("SANDMESH_TEST_CLOUD_CUT", "1.5"))
PACE, PIECE = 20, 8192
"""Pieces a second, and the bytes of one."""

PRINTS = """
import random, sys, time
made, begin = random.Random(7), time.monotonic()
for number in range({count}):
    time.sleep(max(0.0, begin + number / {pace} - time.monotonic()))
    sys.stdout.buffer.write(made.randbytes({piece}))
    sys.stdout.flush()
"""


@pytest.mark.needs("root")
@pytest.mark.timeout(120 + 2 * SECONDS)
async def test_the_output_of_a_long_call_arrives_whole_over_a_link_that_its_cloud_cuts(tmp_path: Path) -> None:
    [(key, secret)] = KEYS.items()
    count, made, expected = SECONDS * PACE, random.Random(7), hashlib.sha256()  # noqa: S311 - the same bytes again
    for _ in range(count):
        expected.update(made.randbytes(PIECE))
    ground = await prepare_ground()
    async with stand_in(tmp_path, ground) as cloud:
        drivers = {
            "SANDMESH_FC_ENDPOINT": cloud.endpoint,
            "SANDMESH_FC_ACCESS_KEY_ID": key,
            "SANDMESH_FC_ACCESS_KEY_SECRET": secret,
        }
        cloud.cut_seconds = CUT_SECONDS
        with trusted(tmp_path):
            async with (
                run_mesh(driver="fc", drivers=drivers) as mesh,
                BaseSandboxAsync(base_url=mesh.addresses[0]) as box,
            ):
                begin = time.monotonic()
                program = PRINTS.format(count=count, pace=PACE, piece=PIECE)
                process = await box.processes.start(["python3", "-c", program], timeout=2 * SECONDS + 60)
                seen, size = hashlib.sha256(), 0
                async for event in process:
                    assert isinstance(event, Output)
                    seen.update(event.data)
                    size += len(event.data)
                ended = await process.wait()
                seconds = time.monotonic() - begin
    assert (ended.reason, ended.exit_code) == ("EXITED", 0)
    assert (size, seen.hexdigest()) == (count * PIECE, expected.hexdigest())
    assert cloud.cuts >= SECONDS / CUT_SECONDS - 2
    assert cloud.living == [], "what was deleted is billed"
    print(f"{size} bytes in {seconds:.0f} s, {cloud.cuts} cuts, each byte as it was printed")  # noqa: T201 - a figure
