"""What the door keeps of a sandbox in its labels: what E2B's clients asked for that the mesh has no field for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pydantic import TypeAdapter, ValidationError

from sandmesh.shared.numbers import decimal
from sandmeshd.facades.e2b.errors import ApiError

LABEL: Final = "e2b"
"""Marks the sandboxes of this door."""

KEPT_SECONDS: Final = 3 * 86_400
"""How long a sandbox stays after its time is over, where it is paused then: the mesh ends its lease so much later."""

_PIECE: Final = 250
_MOST_PIECES: Final = 64


@dataclass(frozen=True)
class Marks:
    """What a client asked for when it made a sandbox."""

    template: str
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    secure: bool = True
    public_traffic: bool = True
    internet: bool = True
    auto_pause: bool = False
    auto_resume: bool = False
    variables: list[str] = field(default_factory=list[str])
    """The names of its variables, without their values."""

    volumes: dict[str, str] = field(default_factory=dict[str, str])
    """Names of volumes by the paths that its client named."""

    mcp: list[str] = field(default_factory=list[str])
    """The groups of tools that its MCP gateway has."""

    memory: bool = True
    """Whether a pause at the end of its time keeps what runs."""

    workdir: str = ""
    """Where its commands run that name no directory; empty is its home."""

    user: str = ""
    """The user of commands that name none; empty is `user`."""

    def lease(self, seconds: float) -> float:
        """Return the seconds for which the mesh is to lease a sandbox whose client asks for so many."""
        return seconds + KEPT_SECONDS if self.auto_pause else seconds

    def ends(self, expires: datetime) -> datetime:
        """Return when a client's time is over, by the end of the lease."""
        return expires - timedelta(seconds=self.lease(0))

    def labels(self) -> dict[str, str]:
        """Return them as labels.

        Raises:
            ApiError: They are too long.
        """
        text = json.dumps(asdict(self), separators=(",", ":"))
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        if len(pieces) > _MOST_PIECES:
            raise ApiError(400, f"metadata has at most {_PIECE * _MOST_PIECES} characters as JSON")
        return {LABEL: str(len(pieces))} | {f"{LABEL}.{number}": piece for number, piece in enumerate(pieces)}


_MARKS: Final = TypeAdapter(Marks)


def read_marks(labels: Mapping[str, str]) -> Marks | None:
    """Read the labels of a sandbox; None where it was not made through this door, or they are damaged.

    Labels may be of any form: those of sandboxes that were made before the mesh reserved the door's own.
    """
    count = decimal(labels.get(LABEL, ""), _MOST_PIECES)
    if not count:
        return None
    text = "".join(labels.get(f"{LABEL}.{number}", "")[:_PIECE] for number in range(count))
    try:
        return _MARKS.validate_json(text, strict=True)
    except ValidationError:
        return None
