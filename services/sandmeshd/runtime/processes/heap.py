"""How a service keeps freed memory and collects garbage: the defaults do both while a caller waits.

glibc's malloc gives back what is free at its heap's end, so that a process which takes and frees buffers of a stream
all the time has each page of them mapped again by the kernel: a third of a gateway's time on bulk.
https://man7.org/linux/man-pages/man3/mallopt.3.html

Python's collector looks for cycles after each 700 new objects, and a create from a pool makes thousands.
https://docs.python.org/3/library/gc.html#gc.set_threshold
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

KEPT_BYTES: Final = 16 << 20
COLLECTOR_THRESHOLDS: Final = (20_000, 50, 100)
"""New objects before the youngest generation is collected, and how often that is before the next one is."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def tune_heap() -> None:
    """Limit the free memory that this process keeps for its next buffers to KEPT_BYTES, and collect garbage rarely.

    The former holds where its C library can.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(ctypes.c_int(_MMAP_THRESHOLD), ctypes.c_int(KEPT_BYTES // 4))
        mallopt(ctypes.c_int(_TRIM_THRESHOLD), ctypes.c_int(KEPT_BYTES))
