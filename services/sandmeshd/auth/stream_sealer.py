"""Streams that only services of the mesh can read: encrypted piece by piece, and bound to what they are saved as.

A sealed stream is a header, 32 random bytes, and frames: a length of four bytes and the encrypted piece. Each stream
has its own key, and each piece its number and whether it is the last in its nonce (STREAM,
https://eprint.iacr.org/2015/189): pieces that are left out, repeated or in another order are noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any, Final

from sandmesh.errors import WorkspaceNotReady
from sandmeshd.auth.sealer import derived_key

_HEADER: Final = b"sandmesh sealed 1\n"
_SALT_BYTES: Final = 32
_TAG_BYTES: Final = 16
_PIECE: Final = 1 << 20
_LARGEST: Final = _PIECE + _TAG_BYTES


class StreamSealer:
    """Encrypts and decrypts streams under the mesh's key (AES-256 in GCM, NIST SP 800-38D)."""

    def __init__(self, mesh_secret: str, purpose: str) -> None:
        self._key = derived_key(mesh_secret, purpose)

    def _cipher(self, salt: bytes) -> Any:
        # Meshes that seal nothing never load it.
        ciphers = import_module("cryptography.hazmat.primitives.ciphers.aead")
        return ciphers.AESGCM(hmac.digest(self._key, salt, hashlib.sha512)[:32])

    async def sealed(self, name: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Encrypt a stream for a name."""
        salt = secrets.token_bytes(_SALT_BYTES)
        cipher, number = self._cipher(salt), 0
        yield _HEADER + salt
        async for piece in stream:
            for at in range(0, len(piece), _PIECE):
                yield _frame(cipher.encrypt(_nonce(number), piece[at : at + _PIECE], name.encode()))
                number += 1
        yield _frame(cipher.encrypt(_nonce(number, last=True), b"", name.encode()))

    async def unsealed(self, name: str, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Decrypt a stream of a name; each piece is verified before it is yielded.

        Raises:
            WorkspaceNotReady: It was sealed for another name, by another mesh, or was changed or cut off.
        """
        failure = import_module("cryptography.exceptions").InvalidTag
        frames = _Frames(stream)
        if await frames.take(len(_HEADER)) != _HEADER:
            raise _unreadable(name)
        cipher, number = self._cipher(await frames.take(_SALT_BYTES)), 0
        try:
            while True:
                (size,) = struct.unpack("!I", await frames.take(4))
                last = size == _TAG_BYTES
                piece = bytes(cipher.decrypt(_nonce(number, last=last), await frames.take(size), name.encode()))
                number += 1
                if last:
                    return
                yield piece
        except (failure, ValueError, struct.error):
            raise _unreadable(name) from None


class _Frames:
    """Reads counts of bytes from a stream."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def take(self, count: int) -> bytes:
        """Return the next bytes, fewer where the stream ends.

        Raises:
            ValueError: They are more than a frame has.
        """
        if count > _LARGEST:
            raise ValueError
        while len(self._buffer) < count:
            data = await anext(self._stream, b"")
            if not data:
                break
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def _frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def _nonce(number: int, *, last: bool = False) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _unreadable(name: str) -> WorkspaceNotReady:
    message = (
        f"what is saved as {name} is not readable: it was saved by a mesh with another secret, or was changed. "
        "Configure the secret that the mesh had (SANDMESH_MESH_SECRET), or remove the storage's objects to start over"
    )
    return WorkspaceNotReady(message, {"workspace": name, "detail": "it cannot be decrypted"})
