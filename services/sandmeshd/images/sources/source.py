"""The interface of what images come from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from sandmeshd.images.documents import Descriptor


@dataclass(frozen=True)
class Resolved:
    """The manifest of a reference as its bytes, whose digest the reader checks."""

    data: bytes
    media_type: str


class RepositorySource(Protocol):
    """One repository: the methods raise InvalidArgument, PermissionDenied or RuntimeUnavailable."""

    async def read_manifest(self, wanted: str) -> Resolved:
        """Return the manifest or index of a tag or digest; empty: the only one."""
        ...

    def read_blob(self, blob: Descriptor, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield a blob's content from an offset on; the reader checks its size and digest."""
        ...
