"""The form of a token's secret: smesh_<id>_<secret>, in letters that need no quoting anywhere.

The first part lets scanners of code and logs recognise one; the id finds the record without the secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_FORM = re.compile(r"smesh_([a-z2-7]{16})_([a-z2-7]{52})")


@dataclass(frozen=True)
class Secret:
    """A token's id and what proves it."""

    token_id: str
    proof: str

    def text(self) -> str:
        """Return the text that a client shows."""
        return f"smesh_{self.token_id}_{self.proof}"

    def digest(self) -> str:
        """Return the digest that is stored: a plain hash does, as nobody guesses 256 random bits however fast it is."""
        return hashlib.sha256(self.proof.encode()).hexdigest()

    def fits(self, digest: str) -> bool:
        """Compare in constant time with a stored digest."""
        return hmac.compare_digest(self.digest(), digest)


def new_secret() -> Secret:
    """Make one."""
    return Secret(_letters(10), _letters(32))


def read_secret(text: str) -> Secret | None:
    """Read what a client shows, or give None where it has another form."""
    found = _FORM.fullmatch(text)
    return Secret(found[1], found[2]) if found else None


def _letters(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().rstrip("=").lower()
