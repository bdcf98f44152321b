"""Tokens of URLs: short enough for a name of the DNS (63 characters), signed, with an end.

A token is the sandbox's id without its prefix, 8 characters that name the exposure, 4 of the port and of what kind of
target it is (20 bits: 3 of the kind, 17 of the port), 7 that say when it ends (seconds since 1970) and 16 that sign all
before, each in base32 without capitals.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Final, cast

from pydantic import SecretStr

from sandmesh.api.port.v1 import port_pb2
from sandmesh.errors import InvalidArgument

_PREFIX: Final = "sb_"
_KIND_SHIFT: Final = 17
_EXPOSURE, _PORT, _EXPIRY, _SIGNATURE = 8, 4, 7, 16
_LONGEST: Final = 63
_PURPOSE: Final = b"sandmesh port url\0"


@dataclass(frozen=True)
class TokenTarget:
    """What a token stands for."""

    sandbox_id: str
    exposure_id: str
    port: int
    expires: int
    kind: port_pb2.ExposureKind.ValueType = port_pb2.EXPOSURE_KIND_UNSPECIFIED


class Signer:
    """Makes tokens and reads those that were made with the same secret."""

    def __init__(self, secret: SecretStr) -> None:
        self._key = hashlib.sha256(_PURPOSE + secret.get_secret_value().encode()).digest()

    def sign(self, target: TokenTarget) -> str:
        """Make the token of a target.

        Raises:
            InvalidArgument: The sandbox's id is not of the form that the mesh gives.
        """
        body = target.sandbox_id.removeprefix(_PREFIX) + target.exposure_id
        body += _write(target.kind << _KIND_SHIFT | target.port, _PORT) + _write(target.expires, _EXPIRY)
        fits = target.sandbox_id.startswith(_PREFIX) and body.isalnum() and body.islower()
        if not fits or len(body) + _SIGNATURE > _LONGEST:
            raise InvalidArgument(f"{target.sandbox_id} cannot be part of a URL's token")
        return body + self._signature(body)

    def read(self, token: str) -> TokenTarget | None:
        """Return the target of a token, None where it was not signed here or has expired."""
        body, signature = token[:-_SIGNATURE], token[-_SIGNATURE:]
        if not token.isascii() or not hmac.compare_digest(self._signature(body), signature):
            return None
        names, port, expires = body[: -_PORT - _EXPIRY], body[-_PORT - _EXPIRY : -_EXPIRY], body[-_EXPIRY:]
        number = _read(port)
        kind = cast("port_pb2.ExposureKind.ValueType", number >> _KIND_SHIFT)
        target = TokenTarget(
            _PREFIX + names[:-_EXPOSURE], names[-_EXPOSURE:], number % (1 << _KIND_SHIFT), _read(expires), kind
        )
        return target if target.expires > time.time() else None

    def _signature(self, body: str) -> str:
        digest = hmac.new(self._key, body.encode(), hashlib.sha256).digest()
        return _encode(digest)[:_SIGNATURE]


def new_exposure() -> str:
    """Return a new exposure's id."""
    return _encode(secrets.token_bytes(5))


def _encode(data: bytes) -> str:
    return base64.b32encode(data).decode().lower().rstrip("=")


def _write(number: int, characters: int) -> str:
    """Write a number in 5 bits a character."""
    bits = 5 * characters
    return _encode((number << (40 - bits)).to_bytes(5, "big"))[:characters]


def _read(text: str) -> int:
    padded = text.upper().ljust(8, "A")
    return int.from_bytes(base64.b32decode(padded), "big") >> (40 - 5 * len(text))
