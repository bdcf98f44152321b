"""The limit of descriptors of a mesh's processes, in processes with limits of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIMITS = """
import resource
from sandmeshd.runtime.processes.descriptors import set_process_limits
set_process_limits()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)[0])
"""

RUN_OUT = """
import os
from sandmeshd.runtime.processes.descriptors import lack_of_descriptors
error = None
while error is None:
    try:
        os.dup(0)
    except OSError as caught:
        error = lack_of_descriptors(caught)
print(error.message)
"""


def _run(program: str, limits: str) -> str:
    command = ["prlimit", f"--nofile={limits}", "--", sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize(("before", "after"), [("256:2048", "2048 2048 0"), ("2048:2048", "2048 2048 0")])
def test_a_soft_limit_of_descriptors_is_raised_to_the_hard_one_and_there_is_no_core(before: str, after: str) -> None:
    assert _run(LIMITS, before).strip() == after


def test_what_runs_out_of_descriptors_names_the_limit_and_what_it_allows() -> None:
    message = _run(RUN_OUT, "264:264")
    assert "no free file descriptors" in message
    assert "its limit is 264, enough for about 50 sandboxes" in message
    assert "LimitNOFILE=" in message
