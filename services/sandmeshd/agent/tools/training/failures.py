"""How a request to a training environment fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Outcome, RunningCall

NOT_FOUND, REFUSED, WRONG_STATE, ALREADY_EXISTS, FAILED, CAPABILITY_MISSING = (
    "NOT_FOUND", "INVALID_ARGUMENT", "WRONG_STATE", "ALREADY_EXISTS", "INSTANCE_FAILED", "CAPABILITY_MISSING",
)  # fmt: skip


class EpisodeFailure(Exception):
    """A request that failed; with the kind `FAILED`, the instance has ended. `fault` says whose fault it is."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        fault: str = "task",
        last_words: Sequence[str] = (),
        reason: int = pb.END_REASON_EXITED,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.fault = fault
        self.last_words = list(last_words)
        self.reason = reason

    async def write(self, call: RunningCall) -> Outcome:
        """Return it as a call's outcome."""
        words = "".join(f"\n  {line}" for line in self.last_words)
        text = f"{self.message}{' Its last words:' if words else ''}{words}"
        await call.text(text)
        return Outcome(True, self.reason, message=self.message, structured=json.dumps(self.described).encode())

    @property
    def described(self) -> dict[str, Any]:
        """What the SDK makes its exception of."""
        about = {"kind": self.kind, "message": self.message, "fault": self.fault, "last_words": self.last_words}
        return {"error": about}
