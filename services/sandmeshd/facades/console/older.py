"""What a mesh does not have that is older than the console, or of which a part is: it is said by name."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar

from sandmesh.errors import Denied, MethodNotFound

T = TypeVar("T")
OLDER: Final = "this mesh, or a part of it, is older than the console and does not have this: update the mesh to see it"
NO_EVENTS: Final = (
    "this mesh is older than the console and tells it of no events: the list is read every few seconds, "
    "and timelines are empty"
)


async def available(reading: Awaitable[T], name: str, missing: list[str]) -> T | None:
    """Return what is read; None where the token does not show it, or the mesh lacks it, whose name `missing` gets."""
    try:
        return await reading
    except Denied:
        return None
    except MethodNotFound:
        missing.append(name)
        return None
