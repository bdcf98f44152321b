"""Grants and secrets that were changed while their sandboxes ran, as files that the next run of the driver reads."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from google.protobuf.message import Message

from sandmesh.shared.atomic_file import open_replacement

M = TypeVar("M", bound=Message)


class Kept(Generic[M]):
    """One file for each sandbox that has another message of a kind than it was made with."""

    def __init__(self, folder: Path, kind: type[M]) -> None:
        self._folder = folder
        self._kind = kind

    def read(self, sandbox_id: str) -> M | None:
        """Return a sandbox's message, None where it was never changed."""
        try:
            return self._kind.FromString((self._folder / sandbox_id).read_bytes())
        except FileNotFoundError:
            return None

    def write(self, sandbox_id: str, message: M) -> None:
        """Keep a message."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_replacement(str(self._folder / sandbox_id), 0o600) as file:
            file.write(message.SerializeToString())

    def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox's message."""
        (self._folder / sandbox_id).unlink(missing_ok=True)
