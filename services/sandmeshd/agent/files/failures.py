"""Errors of the system as results: a number as in errno.h, and a message."""

from __future__ import annotations

import errno
import json
import os
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome
from sandmeshd.agent.files.messages import show

_ADVICE: Final = {
    errno.ENOSPC: "nothing was kept of it; remove what is not needed and try again",
    errno.EDQUOT: "nothing was kept of it; remove what is not needed and try again",
    errno.EFBIG: "nothing was kept of it: files may not be larger here",
    errno.EXDEV: "it is on another file system: copy it and remove the first",
    errno.ENOTEMPTY: "pass recursive to remove everything below it",
    errno.ESTALE: "the file was changed or replaced meanwhile: read it from its start",
    errno.ECANCELED: "nothing was kept of it",
    errno.EBADMSG: "nothing was kept of it",
}


class CallStopped(Exception):
    """The input of a call did not come to its end, or the call was stopped: nothing of it is kept."""


def failure_outcome(error: OSError | ToolFailure, path: str, reason: int = pb.END_REASON_EXITED) -> Outcome:
    """Return the outcome of a call whose path the system, or the workspace's bounds, refused."""
    if isinstance(error, ToolFailure):
        return _outcome(errno.EACCES, str(error), path, reason)
    number = error.errno or errno.EIO
    said = os.strerror(number) if error.strerror is None else error.strerror
    advice = _ADVICE.get(number)
    return _outcome(number, f"{show(path)}: {said}" + (f"; {advice}" if advice else ""), path, reason)


def _outcome(number: int, message: str, path: str, reason: int) -> Outcome:
    structured = json.dumps({"errno": number, "name": errno.errorcode.get(number, ""), "path": path})
    return Outcome(is_error=True, reason=reason, message=message, structured=structured.encode())


def stopped_outcome(path: str, reason: int) -> Outcome:
    """Return the outcome of a call that was stopped before its end."""
    return _outcome(
        errno.ECANCELED, f"{show(path)}: the transfer was interrupted; nothing was kept of it", path, reason
    )
