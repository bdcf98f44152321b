"""The holes in the memory that forks share."""

from __future__ import annotations

import subprocess
import sys

FORK = """
import os, resource, sys
from sandmeshd.agent.userland import heap

kept = [bytes(67) for _ in range(200_000)]
del kept[::40]
if sys.argv[1] == "filled":
    heap.fill_holes()
if os.fork() == 0:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    mine = [bytes(67) for _ in range(2_000)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
os.wait()
"""
"""5,000 holes on as many pages; then the page faults of 2,000 new objects, which fit on 50 pages."""


def faults_of_a_fork(state: str) -> int:
    """Return how many page faults a fork's new objects cost."""
    return int(subprocess.run([sys.executable, "-c", FORK, state], check=True, capture_output=True).stdout)


def test_new_objects_of_a_fork_copy_few_of_the_pages_that_it_shares() -> None:
    assert faults_of_a_fork("as it is") > 1_000
    assert faults_of_a_fork("filled") < 200
