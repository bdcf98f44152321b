"""This user's keys for sandboxes: the client's, and the server's that its clients know."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh

from sandmesh.errors import InvalidArgument
from sandmesh.shared.files.atomic_file import open_replacement
from sandmesh.shared.paths import default_state_directory

HOST_ALIAS: Final = "sandmesh"
_KIND: Final = "ssh-ed25519"


@dataclass(frozen=True)
class SshKeys:
    """Files of keys, which only this user can read."""

    folder: Path

    @property
    def client(self) -> Path:
        """The key that this user's clients show."""
        return self.folder / "id_ed25519"

    @property
    def host(self) -> Path:
        """The key of the server."""
        return self.folder / "host_ed25519"

    @property
    def known_hosts(self) -> Path:
        """What clients know the server by."""
        return self.folder / "known_hosts"

    @property
    def authorized(self) -> str:
        """The public key of this user's clients."""
        return _public(self.client)


def user_keys() -> SshKeys:
    """Return this user's keys; they are made at the first use.

    Raises:
        InvalidArgument: Others may read them, or they cannot be written.
    """
    state = os.environ.get("SANDMESH_STATE_DIRECTORY")
    keys = SshKeys((Path(state) if state else default_state_directory()) / "ssh" / str(os.getuid()))
    try:
        keys.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(keys.folder)
        for path in (keys.client, keys.host):
            if not path.exists():
                _make(path)
            _check(path)
        known = f"{HOST_ALIAS} {_public(keys.host)}\n"
        if not keys.known_hosts.exists() or keys.known_hosts.read_text() != known:
            with open_replacement(str(keys.known_hosts), 0o600) as file:
                file.write(known.encode())
    except (OSError, asyncssh.KeyImportError) as error:
        fix = f"remove {keys.folder}: new keys are made"
        raise InvalidArgument(f"the keys in {keys.folder} cannot be used ({error}): {fix}", {"fix": fix}) from None
    return keys


def _check(path: Path) -> None:
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        fix = f"run `chmod go= {path}` as its owner, or remove it: it is made again"
        raise InvalidArgument(f"other users can read {path}: {fix}", {"fix": fix})


def _public(path: Path) -> str:
    return asyncssh.read_private_key(path).export_public_key().decode().strip()


def _make(path: Path) -> None:
    key = asyncssh.generate_private_key(_KIND, comment="sandmesh")  # pyright: ignore[reportUnknownMemberType]  # its own
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key())
    try:
        # Two that begin at the same time have one key.
        path.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
