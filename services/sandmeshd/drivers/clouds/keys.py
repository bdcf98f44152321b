"""What a cloud driver derives from the mesh's secret, so that it keeps nothing itself: certificate, tokens, records."""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl
import struct
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID
from google.protobuf.message import DecodeError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.agentlink.birth import load_mesh_identity
from sandmeshd.auth.sealer import derived_key
from sandmeshd.drivers.node.records import SpecRecord

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandmesh mesh")])
_BEGIN, _END = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
_NONCE_BYTES = 12
_TOKEN = struct.Struct("!q")


class MeshKeys:
    """The keys of one mesh; a driver with the same secret has the same ones after a restart, or on another machine."""

    def __init__(self, mesh_secret: str, mesh_id: str) -> None:
        self._secret = mesh_secret
        self._mesh_id = mesh_id
        self._cipher = AESGCM(self._derived("record")[:32])
        self._pem, self.pin = self._certificate()

    def _derived(self, purpose: str) -> bytes:
        return derived_key(self._secret, f"cloud {purpose} of {self._mesh_id}")

    def _certificate(self) -> tuple[bytes, str]:
        # Ed25519 signs the same with the same: the pin, which functions have, stays.
        key = Ed25519PrivateKey.from_private_bytes(self._derived("birth")[:32])
        serial = int.from_bytes(self._derived("serial")[:16]) >> 1 or 1
        builder = x509.CertificateBuilder(_NAME, _NAME, key.public_key(), serial, _BEGIN, _END)
        certificate = builder.sign(key, None)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        der = certificate.public_bytes(serialization.Encoding.DER)
        return certificate.public_bytes(serialization.Encoding.PEM) + secret, hashlib.sha256(der).hexdigest()

    def identity(self) -> ssl.SSLContext:
        """Return what shows the mesh's certificate to agents that wait for their birth."""
        # ssl reads keys only from files; this one is in memory.
        descriptor = os.memfd_create("mesh", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, self._pem)
            return load_mesh_identity(Path(f"/proc/self/fd/{descriptor}"))
        finally:
            os.close(descriptor)

    def agent_token(self, session_id: str) -> str:
        """Return the token of the agent of a session."""
        return urlsafe_b64encode(self._derived(f"agent {session_id}")[:32]).decode().rstrip("=")

    def seal(self, record: SpecRecord, session_id: str) -> bytes:
        """Return a sandbox's record as its agent keeps it, which it cannot read."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = _TOKEN.pack(record.fencing_token) + record.sandbox.SerializeToString()
        return nonce + self._cipher.encrypt(nonce, data, session_id.encode())

    def unseal(self, sealed: bytes, session_id: str) -> SpecRecord | None:
        """Return a record that was sealed for a session, None if it was not."""
        try:
            data = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], session_id.encode())
            sandbox = pb.RuntimeSandbox.FromString(data[_TOKEN.size :])
            return SpecRecord(sandbox, int(_TOKEN.unpack_from(data)[0]))
        except (InvalidTag, ValueError, DecodeError, struct.error):
            return None
