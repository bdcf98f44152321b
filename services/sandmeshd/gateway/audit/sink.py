"""A place besides the store that each entry of the audit is written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

import structlog

from sandmesh.api.audit.v1 import audit_pb2 as pb

log = structlog.get_logger()

_WAITING = 10_000
"""How many entries are kept for when the place can be written to again."""


class AuditSink(ABC):
    """Write each entry, in order; what cannot be written waits."""

    def __init__(self, name: str) -> None:
        self.name = name
        """What it is, for messages."""
        self.trouble = ""
        """Why it cannot be written to; empty where it can."""
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)

    def append(self, entry: pb.AuditEntry) -> None:
        """Write an entry, after those that wait."""
        self._waiting.append(self._encode(entry))
        self.flush()

    def flush(self) -> bool:
        """Write what waits; return whether that could be done."""
        try:
            self._write()
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self.trouble:
                log.warning("the audit cannot be written", to=self.name, error=reason)
            self.trouble = reason
            return False
        self.trouble = ""
        return True

    @abstractmethod
    def _encode(self, entry: pb.AuditEntry) -> bytes:
        """Return an entry as it is written."""

    @abstractmethod
    def _write(self) -> None:
        """Write what waits and remove it, or check that something could be written.

        Raises:
            OSError: It cannot be.
        """

    def close(self) -> None:  # noqa: B027 - a place need not hold anything
        """Release what is held."""
