"""Grants and secrets that were changed while their sandboxes ran, as files that the next run of the driver reads."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from sandmesh.shared.atomic_file import open_replacement

log = structlog.get_logger()

M = TypeVar("M", bound=Message)


class Kept(Generic[M]):
    """One file for each sandbox that has another message of a kind than it was made with."""

    def __init__(self, folder: Path, kind: type[M], unreadable: M | None = None) -> None:
        """Keep messages of a kind in a folder; `unreadable` is in force where a file cannot be read."""
        self._folder = folder
        self._kind = kind
        self._unreadable = unreadable

    def read(self, sandbox_id: str) -> M | None:
        """Return a sandbox's message, None where it was never changed."""
        path = self._folder / sandbox_id
        try:
            return self._kind.FromString(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, DecodeError) as error:
            fix = "change it again, or release the sandbox"
            log.warning(
                "a kept change cannot be read", sandbox_id=sandbox_id, path=str(path), error=str(error), fix=fix
            )
            return self._unreadable

    def write(self, sandbox_id: str, message: M) -> None:
        """Keep a message."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_replacement(str(self._folder / sandbox_id), 0o600) as file:
            file.write(message.SerializeToString())

    def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox's message."""
        (self._folder / sandbox_id).unlink(missing_ok=True)
