"""TLS of a connection as bytes: what asyncio's own transport does in twice the time, since it serves every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

_READ_BYTES = 64 << 10


class TlsBytes:
    """Turns bytes to send into those of TLS, and those received back; nothing is sent before the handshake is over."""

    def __init__(self, context: SSLContext, name: str) -> None:
        """`name` is what the other side's certificate must be for."""
        import ssl  # noqa: PLC0415 - few need it

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._wants_more = ssl.SSLWantReadError
        self._shaken = False

    @property
    def protocol(self) -> str | None:
        """What both sides agreed to speak inside."""
        return self._session.selected_alpn_protocol()

    def shake(self, data: bytes = b"") -> bool:
        """Go on with the handshake, and return whether it is over.

        Raises:
            SSLError: The other side cannot be trusted, or does not speak TLS.
        """
        self._incoming.write(data)
        if not self._shaken:
            try:
                self._session.do_handshake()
            except self._wants_more:
                return False
            self._shaken = True
        return True

    def decrypt(self) -> bytes:
        """Return what arrived and is whole.

        Raises:
            SSLError: The bytes are not the other side's, or it ended the session.
        """
        found: list[bytes] = []
        while self._incoming.pending or self._session.pending():
            try:
                found.append(self._session.read(_READ_BYTES))
            except self._wants_more:
                break
        return found[0] if len(found) == 1 else b"".join(found)

    def encrypt(self, data: bytes) -> bytes:
        """Return what is to be sent for some data, and what TLS itself has to say."""
        if data:
            self._session.write(data)
        return self._outgoing.read()
