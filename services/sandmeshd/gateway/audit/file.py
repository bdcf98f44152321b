"""The audit as a file of JSON lines."""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from pathlib import Path

import structlog
from google.protobuf.json_format import MessageToDict

from sandmesh.api.audit.v1 import audit_pb2 as pb

log = structlog.get_logger()

_WAITING = 10_000
"""How many lines are kept for when the file can be written again."""


class AuditFile:
    """Append a line for each entry; what cannot be written waits, in order.

    The file is opened for each write, so that one that was rotated away is followed by a new one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        """Why it cannot be written; empty where it can."""
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)
        self._torn = False

    def append(self, entry: pb.AuditEntry) -> None:
        """Write an entry, after those that wait."""
        fields = MessageToDict(entry, preserving_proto_field_name=True)
        self._waiting.append(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
        self.flush()

    def flush(self) -> bool:
        """Write what waits; return whether the file could be written."""
        try:
            self._write()
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self.trouble:
                log.warning("the audit file cannot be written", file=str(self.path), error=reason)
            self.trouble = reason
            return False
        self.trouble = ""
        return True

    def _write(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while self._waiting:
                line = b"\n" + self._waiting[0] if self._torn else self._waiting[0]
                written = os.write(descriptor, line)
                self._torn = written < len(line) and (self._torn or written > 0)
                if written < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._waiting.popleft()
        finally:
            os.close(descriptor)
