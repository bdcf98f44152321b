"""The audit to a syslog server: the machine's own by its socket, or another by UDP (RFC 5424 and 5426)."""

from __future__ import annotations

import errno
import json
import os
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import structlog
from google.protobuf.json_format import MessageToDict

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.gateway.audit.sink import AuditSink

log = structlog.get_logger()

SETTING = "SANDMESH_AUDIT_SYSLOG"
NAME = "sandmesh-audit"
PORT = 514

_AUTHPRIV, _NOTICE, _INFO = 10, 5, 6
"""Of RFC 5424, 6.2.1: security messages; those that are significant, and all others."""


class AuditSyslog(AuditSink):
    """Send each entry as a message of one line of JSON, without waiting for the server."""

    def __init__(self, address: str) -> None:
        """Take the server's address, unix:///PATH or udp://HOST:PORT.

        Raises:
            InvalidArgument: The host has no address.
        """
        super().__init__(f"the syslog server {address}")
        self._family, self._address = _resolved(address)
        self._socket: socket.socket | None = None

    def _encode(self, entry: pb.AuditEntry) -> bytes:
        severity = _INFO if entry.outcome == "OK" else _NOTICE
        priority = f"<{_AUTHPRIV * 8 + severity}>"
        # RFC 5424 wants a byte order mark before what is not ASCII.
        text = json.dumps(MessageToDict(entry, preserving_proto_field_name=True))
        if self._family == socket.AF_UNIX:
            return f"{priority}{NAME}[{os.getpid()}]: {text}".encode()
        header = f"{priority}1 {entry.time.ToJsonString()} {socket.gethostname()} {NAME} {os.getpid()} audit -"
        return f"{header} {text}".encode()

    def _write(self) -> None:
        if self._socket is not None:
            with suppress(ConnectionError):
                self._send_waiting(self._socket)
                return
            # A server that was started again has another socket at the same path.
            self.close()
        self._send_waiting(self._connect())

    def _send_waiting(self, connected: socket.socket) -> None:
        while self._waiting:
            self._send(connected, self._waiting[0])
            self._waiting.popleft()

    def _send(self, connected: socket.socket, message: bytes) -> None:
        try:
            connected.send(message)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            log.warning("an entry of the audit is too large for syslog; the store has it", size=len(message))

    def _connect(self) -> socket.socket:
        made = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.connect(self._address)
        except OSError:
            made.close()
            raise
        self._socket = made
        return made

    def close(self) -> None:
        """Close the socket."""
        connected, self._socket = self._socket, None
        if connected is not None:
            connected.close()


def _resolved(address: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        return socket.AF_UNIX, parts.path
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or PORT, type=socket.SOCK_DGRAM)
    except OSError as error:
        fix = f"correct {SETTING}"
        message = f"the syslog server {address} has no address ({error.strerror}): {fix}"
        raise InvalidArgument(message, {"field": "audit_syslog", "fix": fix}) from None
    family, _, _, _, (host, port, *_) = found[0]
    return family, (str(host), int(port))
