"""What a host has that a sandbox must not reach, made so that whoever can see it may use it."""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandmeshd.runtime.user_namespaces.removal import remove_tree

IPC_CREAT, IPC_RMID = 0o1000, 0


@dataclass(frozen=True)
class Decoys:
    """The places to look for, by which every attempt says what it reached."""

    folder: Path
    abstract: str
    port: int
    secret: str
    segment: int

    @property
    def file(self) -> Path:
        """A file that everybody may read and write."""
        return self.folder / "file"

    @property
    def socket(self) -> Path:
        """A socket that everybody may connect to."""
        return self.folder / "socket"

    @property
    def shared(self) -> Path:
        """A file in shared memory that everybody may read and write."""
        return Path("/dev/shm", self.folder.name)


@contextmanager
def laid_out(uid: int) -> Generator[Decoys]:
    """Make them for the time of a block; files are those of `uid`."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sm-decoys-", dir="/var/tmp"))
        stack.callback(remove_tree, folder)
        name, secret = f"sm-{secrets.token_hex(6)}", secrets.token_hex(16)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        decoys = Decoys(folder, name, tcp.getsockname()[1], secret, secrets.randbelow(1 << 30))
        for address in ("\0" + name, str(decoys.socket)):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(address)
            server.listen()
        for path in (decoys.file, decoys.shared):
            path.write_text(secret)
            path.chmod(0o666)
        stack.callback(decoys.shared.unlink)
        for path in (folder, decoys.file):
            os.chown(path, uid, uid)
        folder.chmod(0o777)
        decoys.socket.chmod(0o777)
        _share_segment(stack, decoys.segment)
        os.environ[folder.name] = secret
        stack.callback(os.environ.pop, folder.name)
        yield decoys


def _share_segment(stack: ExitStack, key: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    made = libc.shmget(key, 4096, IPC_CREAT | 0o666)
    assert made >= 0
    stack.callback(libc.shmctl, made, IPC_RMID, None)
