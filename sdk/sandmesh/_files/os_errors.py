"""Failed results of file calls as the exceptions that `open` raises."""

from __future__ import annotations

import errno
from typing import Any

from sandmesh.errors import Cancelled, DeadlineExceeded
from sandmesh.events import Result


def is_interrupted(result: Result) -> bool:
    """Return whether a transfer was cancelled because its reader seemed to be gone: it may be resumed."""
    return result.is_error and result.reason == "CANCELLED"


def check_result(result: Result) -> dict[str, Any]:
    """Return a result's facts.

    Raises:
        OSError: The error of the sandbox's system, as the subclass of its errno.
        DeadlineExceeded: It timed out.
        Cancelled: It was cancelled.
    """
    facts = result.structured or {}
    if not result.is_error:
        return facts
    if result.reason == "TIMED_OUT":
        raise DeadlineExceeded(f"{result.message}: it timed out; give the box a longer timeout")
    if result.reason == "CANCELLED":
        raise Cancelled(result.message)
    number = facts.get("errno")
    raise OSError(number if isinstance(number, int) else errno.EIO, result.message)
