"""`python -m benchmarks.forking`: prints how many seconds it takes until a fork of 40 MB is in seven namespaces."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import sys
import time
from typing import Final

ROUNDS: Final = 40
HELD: Final = 40 << 20
NAMESPACES: Final = 0x10000000 | 0x20000 | 0x20000000 | 0x8000000 | 0x4000000 | 0x40000000 | 0x2000000
"""CLONE_NEW* of linux/sched.h: user, mount, PID, IPC, UTS, network and cgroup."""


def once(libc: ctypes.CDLL) -> float:
    """Fork once and give the seconds until the child is apart.

    Raises:
        OSError: This user may make no namespaces here.
    """
    reader, writer = os.pipe()
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.write(writer, b"1" if libc.unshare(NAMESPACES) == 0 else b"0")
        os._exit(0)
    report = os.read(reader, 1)
    seconds = time.perf_counter() - started
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    if report != b"1":
        raise OSError("no namespaces can be made here")
    return seconds


def main() -> None:
    """Measure and print."""
    held = bytearray(os.urandom(1 << 12) * (HELD >> 12))
    libc = ctypes.CDLL(None)
    gc.freeze()
    try:
        print(statistics.median(once(libc) for _ in range(ROUNDS)))
    except OSError as error:
        sys.exit(f"{error}, with {len(held)} bytes held")


if __name__ == "__main__":
    main()
