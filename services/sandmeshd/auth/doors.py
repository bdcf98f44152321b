"""The doors' own labels of sandboxes, and the proof by which a gateway knows a door.

A door acts in the name of its client's token, and says beside it that it is a door: `Bearer TOKEN door=PROOF`. The
proof follows from the mesh's secret, or is an administrator's token where a door runs apart without that secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.auth.principal import Principal

DOORS: Final = ("agentscope", "e2b", "jupyter", "sandboxfusion", "swerex")
_RESERVED: Final = re.compile(rf"(?i:{'|'.join(DOORS)})(?![a-z0-9])")
_PROOF: Final = " door="


def door_proof(secret: str) -> str:
    """Return the proof that doors with the mesh's secret show."""
    return hmac.new(secret.encode(), b"sandmesh door", hashlib.sha256).hexdigest()


def as_door(token: str, proof: str) -> str:
    """Return a client's token, which may be empty, with a door's proof."""
    return f"{token}{_PROOF}{proof}" if proof else token


def split_proof(shown: str) -> tuple[str, str]:
    """Return the token and the proof of what a request shows; each may be empty."""
    token, _, proof = f" {shown}".partition(_PROOF)
    return token.strip(), proof.strip()


def check_labels(names: Iterable[str], principal: Principal) -> None:
    """Check that labels of a door are set by a door.

    Raises:
        InvalidArgument: One is a door's and the request is not.
    """
    taken = [] if principal.door else sorted(name for name in names if _RESERVED.match(name))
    if taken:
        message = (
            f"the label {taken[0][:63]!r} is reserved: labels that begin with {', '.join(DOORS)} are set by those "
            "doors of the mesh only; choose another name, or create the sandbox through the door (one that runs apart "
            "needs --secret-file with the mesh's secret, or an administrator's SANDMESH_TOKEN)"
        )
        raise InvalidArgument(message, {"field": "spec.labels", "label": taken[0][:63]})
