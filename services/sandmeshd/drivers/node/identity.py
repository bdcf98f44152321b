"""A sandbox's certificate and key: its agent presents it, and clients pin its hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandmesh agent")])
_BEGIN, _END = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Independent of clocks: it ends with its sandbox (RFC 5280, 4.1.2.5: no well-defined expiration date)."""


@dataclass(frozen=True)
class TlsIdentity:
    """A certificate with its private key."""

    pem: bytes = field(repr=False)
    """Both, in the form that the agent reads."""

    pin: str
    """The SHA-256 of the certificate, in hexadecimal digits."""


def new_identity() -> TlsIdentity:
    """Make a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(_NAME, _NAME, key.public_key(), x509.random_serial_number(), _BEGIN, _END)
    certificate = builder.sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    der = certificate.public_bytes(serialization.Encoding.DER)
    return TlsIdentity(pem + secret, hashlib.sha256(der).hexdigest())
