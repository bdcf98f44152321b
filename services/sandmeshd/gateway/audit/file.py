"""The audit as a file of JSON lines."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmeshd.gateway.audit.sink import AuditSink


class AuditFile(AuditSink):
    """Append a line for each entry.

    The file is opened for each write, so that one that was rotated away is followed by a new one.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"the audit file {path}")
        self._path = path
        self._torn = False

    def _encode(self, entry: pb.AuditEntry) -> bytes:
        fields = MessageToDict(entry, preserving_proto_field_name=True)
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"

    def _write(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
