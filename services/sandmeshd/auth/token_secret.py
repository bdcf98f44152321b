"""The forms of a token's secret: smesh_<id>_<secret> in letters that need no quoting, and e2b_<id><secret> in hex.

The first part lets scanners of code and logs recognise one; the id finds the record without the secret. The second form
is what E2B's clients take for a key: 16 digits of an id and 24 that cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_FORM = re.compile(r"smesh_([a-z2-7]{16})_([a-z2-7]{52})")
_E2B_FORM = re.compile(r"e2b_([0-9a-f]{16})([0-9a-f]{24})")


@dataclass(frozen=True)
class TokenSecret:
    """A token's id and what proves it."""

    token_id: str
    proof: str
    is_e2b: bool = False
    """Whether it is written as a key of E2B."""

    def text(self) -> str:
        """Return the text that a client shows."""
        if self.is_e2b:
            return f"e2b_{self.token_id}{self.proof}"
        return f"smesh_{self.token_id}_{self.proof}"

    def digest(self) -> str:
        """Return the digest that is stored: a plain hash does, as 96 random bits cannot be guessed."""
        return hashlib.sha256(self.proof.encode()).hexdigest()

    def fits(self, digest: str) -> bool:
        """Compare in constant time with a stored digest."""
        return hmac.compare_digest(self.digest(), digest)


def new_secret() -> TokenSecret:
    """Make one."""
    return TokenSecret(_letters(10), _letters(32))


def new_e2b_secret() -> TokenSecret:
    """Make one in the form of E2B's keys."""
    return TokenSecret(secrets.token_hex(8), secrets.token_hex(12), is_e2b=True)


def read_secret(text: str) -> TokenSecret | None:
    """Read what a client shows, or give None where it has another form."""
    found = _FORM.fullmatch(text)
    if found:
        return TokenSecret(found[1], found[2])
    found = _E2B_FORM.fullmatch(text)
    return TokenSecret(found[1], found[2], is_e2b=True) if found else None


def _letters(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().rstrip("=").lower()
