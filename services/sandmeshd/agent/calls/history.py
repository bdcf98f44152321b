"""The newest calls of a sandbox, for people who ask what happened in it."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from sandmesh.api.call.v1 import call_pb2 as pb

KEPT: Final = 200
_LONGEST_NAME: Final = 200
_UNLISTED: Final = ("list_calls", "read_stats", "list_mcp_servers", "list_processes", "watch_tools", "connect_mcp")
"""What looks at a sandbox and does nothing in it."""
_UNLISTED_GROUPS: Final = ("ports.", "desktop.", "browser.", "mobile.", "kernels.", "view.")
"""What gateways and drivers ask for themselves."""


@dataclass(slots=True)
class PastCall:
    """A call without its arguments and results, which may be secret and large."""

    history: CallHistory
    tool: str
    started: float
    """In seconds since 1970."""
    _began: float
    seconds: float | None = None
    reason: str = ""
    is_error: bool = False

    def finish(self, reason: int, *, is_error: bool) -> None:
        """Note how the call ended, now."""
        self.seconds = time.monotonic() - self._began
        self.reason = pb.EndReason.Name(reason).removeprefix("END_REASON_")  # type: ignore[arg-type]  # typeshed has no open enums
        self.is_error = is_error


class CallHistory:
    """The newest calls, the oldest first."""

    def __init__(self) -> None:
        self._calls: deque[PastCall] = deque(maxlen=KEPT)

    def begin(self, tool: str) -> PastCall:
        """Note a call that starts now."""
        call = PastCall(self, tool[:_LONGEST_NAME], time.time(), time.monotonic())
        if tool not in _UNLISTED and not tool.startswith(_UNLISTED_GROUPS):
            self._calls.append(call)
        return call

    def listing(self) -> bytes:
        """Return the calls as JSON; one that runs has no `seconds`."""
        calls = [
            {
                "tool": call.tool,
                "started": call.started,
                "seconds": call.seconds,
                "reason": call.reason,
                "is_error": call.is_error,
            }
            for call in self._calls
        ]
        return json.dumps({"calls": calls}).encode()
