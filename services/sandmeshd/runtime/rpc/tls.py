"""A server's certificate, read again when it was renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import structlog

from sandmesh.errors import InvalidArgument

log = structlog.get_logger()


class ServerTls:
    """A certificate with its chain and its key, both in PEM.

    gRPC asks at every handshake, so that a renewed certificate is used without a restart.
    """

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert = cert
        self._key = key
        self._loaded: tuple[int, int] = (0, 0)

    def credentials(self) -> grpc.ServerCredentials:
        """Return gRPC's credentials.

        Raises:
            InvalidArgument: A file cannot be read.
        """
        configuration = self._read()
        # The stubs do not know that None keeps the certificate.
        return grpc.dynamic_ssl_server_credentials(configuration, cast("Any", self._renewed))

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            self._loaded = self._times()
            pair = (self._key.read_bytes(), self._cert.read_bytes())
        except OSError as error:
            message = f"the certificate or its key cannot be read: {error.strerror}: {error.filename}"
            raise InvalidArgument(message, {"file": str(error.filename)}) from None
        for path, text, mark in ((self._key, pair[0], b"PRIVATE KEY-----"), (self._cert, pair[1], b"CERTIFICATE-----")):
            if mark not in text:
                raise InvalidArgument(f"{path} is not a {mark.decode().strip('-').lower()} in PEM", {"file": str(path)})
        return grpc.ssl_server_certificate_configuration([pair])

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            return self._read() if self._times() != self._loaded else None
        except (OSError, InvalidArgument) as error:
            # The old one serves on; its end would be worse than a wrong file beside it.
            log.warning("a renewed certificate cannot be used", error=str(error))
            return None

    def _times(self) -> tuple[int, int]:
        return self._cert.stat().st_mtime_ns, self._key.stat().st_mtime_ns
