"""A full disk, told as what it is."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sandmesh.errors import RuntimeUnavailable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Return whether there is no space left, or no quota."""
    return error.errno in _FULL


@contextmanager
def full_disk_explained(directory: Path) -> Generator[None]:
    """Turn the lack of space into an error that says where.

    Raises:
        RuntimeUnavailable: There is no space left, or no quota.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        fix = f"free space below {directory}, or choose another directory"
        raise RuntimeUnavailable(f"the disk is full: {fix}", {"fix": fix}) from None
