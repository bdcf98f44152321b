"""The TCP addresses at which a mesh's services on this machine listen, as notes that end with the process."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

Address = tuple[str, int]
"""A host, without brackets, and a port."""

_STORE_PORT = 6379


class Listeners:
    """Notes in a directory, one file each; its writer holds it locked, so that a dead process's is known as such."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def noted(self, addresses: Sequence[str]) -> Generator[None]:
        """Note addresses (host:port or URLs; unix sockets are left out) until the block ends."""
        lines = [f"{host} {port}" for host, port in filter(None, map(read_address, addresses))]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Without a reader, those of processes that were killed would be kept for ever.
        self.all()
        # Readers skip it by this ending until it is locked and complete.
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(6)}"
        descriptor = os.open(f"{path}~", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, "\n".join(lines).encode())
            Path(f"{path}~").rename(path)
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def all(self) -> frozenset[Address]:
        """Return what living processes have noted, and remove the notes of dead ones."""
        found: set[Address] = set()
        for path in self._folder.glob("*[!~]"):
            with suppress(FileNotFoundError):
                found |= _read(path)
        return frozenset(found)


def _read(path: Path) -> set[Address]:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            rows = [line.split() for line in file]
            return {(host, int(port)) for host, port in rows}
        path.unlink()
        return set()


def read_address(text: str) -> Address | None:
    """Return the host and port of an address or URL; None for a unix socket's, or without a port."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    if parts.scheme == "unix" or not parts.hostname:
        return None
    port = parts.port or (_STORE_PORT if parts.scheme in ("redis", "rediss") else None)
    return None if port is None else (parts.hostname, port)
