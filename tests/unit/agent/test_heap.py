"""The memory that forks share, and what they copy of it."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FORK = """
import os, resource, sys
from sandmeshd.agent.userland.core import heap

size, state = int(sys.argv[1]), sys.argv[2]
kept = [bytes(size) for _ in range(200_000)]
del kept[::40]
if state == "filled":
    heap.fill_holes()
if os.fork() == 0:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    mine = [bytes(size) for _ in range(2_000)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
os.wait()
"""
"""5,000 holes on as many pages; then the page faults of 2,000 new objects, which fit on 50 pages, large ones on 300."""

LOOKUPS = """
import sys
from sandmeshd.agent.userland.core import heap

names = [f"name_{number}" for number in range(2_000)]
kind = type("Kind", (), dict.fromkeys(names))
for name in names:
    getattr(kind, name)
before = [sys.getrefcount(name) for name in names]
heap.forget_lookups()
print(sum(sys.getrefcount(name) < count for name, count in zip(names, before, strict=True)))
"""


def faults_of_a_fork(size: int, state: str) -> int:
    """Return how many page faults a fork's new objects cost."""
    command = [sys.executable, "-c", FORK, str(size), state]
    return int(subprocess.run(command, check=True, capture_output=True).stdout)


def test_new_objects_of_a_fork_copy_few_of_the_pages_that_it_shares() -> None:
    assert faults_of_a_fork(67, "as it is") > 1_000
    assert faults_of_a_fork(67, "filled") < 200


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is another than glibc")
def test_large_ones_copy_few_of_the_c_librarys_either() -> None:
    assert faults_of_a_fork(567, "as it is") > 1_000
    assert faults_of_a_fork(567, "filled") < 500


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="names are immortal: nothing is counted")
def test_lookups_that_were_forgotten_hold_no_names() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKUPS], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 100
