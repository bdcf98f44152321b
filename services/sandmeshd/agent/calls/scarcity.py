"""Errors of the system that mean that the sandbox or the machine has run out of something."""

from __future__ import annotations

import errno
from typing import Final

SCARCE: Final = frozenset({errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})


def scarcity(number: int | None) -> str:
    """Return what there is no more of, and what to do; empty for an errno outside of `SCARCE`."""
    if number == errno.ETOOMANYREFS:
        return (
            "too many descriptors are under way in unix sockets (ETOOMANYREFS). "
            "End what sends descriptors that are not received, and try again"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return (
            f"there are no free descriptors ({errno.errorcode[number]}). "
            "End calls, processes and kernels that are no longer needed, and try again"
        )
    if number in (errno.ENOBUFS, errno.ENOMEM):
        return f"the machine has no free memory ({errno.errorcode[number]}). Try again when less runs"
    if number == errno.ENOSPC:
        return (
            "the disk is full, or programs of the same user hold all epoll watches (ENOSPC). "
            "Delete files, end what holds watches, or raise fs.epoll.max_user_watches, and try again"
        )
    return ""
