"""Values that only services of the mesh can read: encrypted, and bound to their owner and to the hosts they are for."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from functools import cached_property
from importlib import import_module
from typing import Any

from sandmesh.errors import InvalidArgument

_NONCE_BYTES = 12


def derived_key(mesh_secret: str, purpose: str) -> bytes:
    """Return 64 bytes that follow from the mesh's secret and a purpose, and tell nothing of either."""
    return hmac.digest(mesh_secret.encode(), f"sandmesh {purpose}".encode(), hashlib.sha512)


class Sealer:
    """Encrypts and decrypts values of secrets under the mesh's key (AES-256 in GCM, NIST SP 800-38D)."""

    def __init__(self, mesh_secret: str) -> None:
        self._mesh_secret = mesh_secret

    @cached_property
    def _cipher(self) -> Any:
        # Meshes without secrets never load it.
        ciphers = import_module("cryptography.hazmat.primitives.ciphers.aead")
        return ciphers.AESGCM(derived_key(self._mesh_secret, "secrets")[:32])

    def seal(self, value: str, owner: str, hosts: Iterable[str]) -> bytes:
        """Encrypt a value for an owner and hosts."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + bytes(self._cipher.encrypt(nonce, value.encode(), _binding(owner, hosts)))

    def unseal(self, sealed: bytes, owner: str, hosts: Iterable[str]) -> str:
        """Decrypt a value.

        Raises:
            InvalidArgument: It was sealed for another owner or other hosts, by another mesh, or was changed.
        """
        failure = import_module("cryptography.exceptions").InvalidTag
        nonce, data = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return bytes(self._cipher.decrypt(nonce, data, _binding(owner, hosts))).decode()
        except (failure, ValueError):
            message = (
                "the sealed value is not for this user and these hosts, or is of another mesh: set the secret again"
            )
            raise InvalidArgument(message, {"field": "sealed"}) from None


def _binding(owner: str, hosts: Iterable[str]) -> bytes:
    parts = [owner.encode(), *(host.encode() for host in sorted(hosts))]
    return b"".join(f"{len(part)}:".encode() + part for part in parts)
