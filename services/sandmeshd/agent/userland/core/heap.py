"""The memory that forks share, prepared before the first fork so that they write to little of it.

The first object that a fork puts into a page which it shares makes the kernel copy that page. Python and the C library
put new objects into the holes that freed ones left, so a few thousand of them, scattered over all that the forked
process has, cost as many copies. Where there are no holes, forks fill their own pages, one after the other.

Python remembers the last 4,096 attributes of types that were looked up, and counts a reference to the name of each. A
fork that looks up others drops names that only imports needed, anywhere in memory.

The sizes are those of CPython's Objects/obmalloc.c.
"""

from __future__ import annotations

import ctypes
import sys

_POOL_BYTES = 16_384
_POOL_HEADER = 48
_ALIGNMENT = 16
_LARGEST = 512
_EMPTY_BYTES = 33
"""What an object of bytes has beside them."""
_IN_A_ROW = 3
"""The neighbours from a pool's beginning on that tell that it is a new one."""
_MOST = 20_000
"""The bound for one size, for interpreters that lay out their pools in another way."""

_LARGEST_HOLE = 65_536
"""The C library's holes that are larger are filled in parts."""
_SIZE_FIELD = 8
"""What a block of the C library's has beside its bytes."""

_fillers: list[bytes] = []


class _Mallinfo2(ctypes.Structure):
    """The struct of mallinfo(3): ten sizes, of which the last is the free memory above all blocks."""

    _fields_ = [("others", ctypes.c_size_t * 9), ("keepcost", ctypes.c_size_t)]


def forget_lookups() -> None:
    """Forget which attributes of types were looked up, before what forks do is done for the first time."""
    clear = getattr(sys, "_clear_type_cache", None)
    if clear is not None:
        clear()


def fill_holes() -> None:
    """Fill the free places of Python's memory, and of the C library's."""
    _fill_pools()
    _fill_below_top()


def _fill_below_top() -> None:
    """Fill the free places below the C library's last block, from large to small; what fills them is never freed."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return
    libc.mallinfo2.restype = _Mallinfo2
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_size_t
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_size_t
    libc.free.argtypes, libc.free.restype = [ctypes.c_size_t], None
    top = libc.sbrk(0) - libc.mallinfo2().keepcost
    for size in range(_LARGEST_HOLE, _ALIGNMENT, -_ALIGNMENT):
        while (place := libc.malloc(size - _SIZE_FIELD)) and place < top:
            pass
        libc.free(place)


def _fill_pools() -> None:
    """Fill the free places in pools that hold something, of each size that an object of bytes can have."""
    for size in range(3 * _ALIGNMENT, _LARGEST + 1, _ALIGNMENT):
        expected = row = 0
        for _ in range(_MOST):
            filler = bytes(size - _EMPTY_BYTES)
            _fillers.append(filler)
            offset = id(filler) % _POOL_BYTES
            row = 1 if offset == _POOL_HEADER else row + 1 if row and offset == expected else 0
            if row == _IN_A_ROW:
                break
            expected = offset + size
