"""What glibc's malloc keeps of memory that was freed.

By default it gives back what is free at its heap's end, so that a process which takes and frees buffers of a stream all
the time has each page of them mapped anew by the kernel: a third of a gateway's time on bulk.
https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 16 << 20

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Limit the free memory that this process keeps for its next buffers to KEPT_BYTES, where its C library can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(ctypes.c_int(_MMAP_THRESHOLD), ctypes.c_int(KEPT_BYTES // 4))
        mallopt(ctypes.c_int(_TRIM_THRESHOLD), ctypes.c_int(KEPT_BYTES))
