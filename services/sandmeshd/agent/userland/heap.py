"""The holes in the memory that forks share, filled before the first fork.

The first object that a fork puts into a page which it shares makes the kernel copy that page. Python puts new objects
into the holes that freed ones left, so a few thousand of them, scattered over all that the forked process has, cost as
many copies. Where there are no holes, forks fill pages of their own, one after the other.

The sizes are those of CPython's Objects/obmalloc.c.
"""

from __future__ import annotations

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

_fillers: list[bytes] = []


def fill_holes() -> None:
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
