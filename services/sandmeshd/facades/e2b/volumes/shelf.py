"""A user's volumes by name: which there are, and a sandbox that looks into one."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.events import Output
from sandmesh.inputs import Options
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.replies import result_of

PLACE: Final = "/mnt/volume"
"""Where the sandboxes that look into volumes have them."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_REGISTRY: Final = ".e2b"
"""The volume that has a directory of the name of each other."""

_LABEL: Final = "e2b-volume"
_IDLE_SECONDS: Final = 60.0
_SECONDS: Final = 3600.0
_SEEN_SECONDS: Final = 10.0
_MOST_SEEN: Final = 10_000
_PROGRAM: Final = """
import json, os, shutil, stat, sys
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}

def show(top, path):
    found = os.lstat(top + path)
    shown = dict(path=path, type=KINDS.get(stat.S_IFMT(found.st_mode), "unknown"), size=found.st_size,
                 mode=stat.S_IMODE(found.st_mode), uid=found.st_uid, gid=found.st_gid,
                 atime=found.st_atime, mtime=found.st_mtime, ctime=found.st_ctime)
    return shown | (dict(target=os.readlink(top + path)) if shown["type"] == "symlink" else {})

def listed(top, path, depth):
    for name in sorted(os.listdir(top + path)):
        below = path.rstrip("/") + "/" + name
        one = show(top, below)
        yield one
        if one["type"] == "directory" and depth > 1:
            yield from listed(top, below, depth - 1)

def change(top, path, uid, gid, mode):
    if uid is not None or gid is not None:
        os.chown(top + path, -1 if uid is None else uid, -1 if gid is None else gid, follow_symlinks=False)
    if mode is not None:
        os.chmod(top + path, mode)
    return show(top, path)

def make(top, path, uid, gid, mode, force):
    os.makedirs(top + path, exist_ok=True) if force else os.mkdir(top + path)
    return change(top, path, uid, gid, mode)

def remove(top, path):
    if os.path.isdir(top + path) and not os.path.islink(top + path):
        shutil.rmtree(top + path)
    else:
        os.remove(top + path)

def empty(top):
    for name in os.listdir(top):
        remove(top, "/" + name)

acts = dict(show=show, list=lambda *one: list(listed(*one)), change=change, make=make, remove=remove, empty=empty)
name, arguments = json.loads(sys.argv[1])
try:
    answer = dict(result=acts[name](sys.argv[2], *arguments))
except OSError as error:
    answer = dict(errno=error.errno, message=error.strerror)
print(json.dumps(answer))
"""


class Shelf:
    """Keeps users' volumes; each request is made in the name of a key."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._seen: dict[tuple[str, str], float] = {}
        """When each volume was there, by the hash of a key and its name."""

    async def names(self, key: str) -> list[str]:
        """Return the names of a user's volumes."""
        async with self._box(key, _REGISTRY) as box:
            return [str(one["path"])[1:] for one in await act(box, "list", "/", 1)]

    async def check(self, key: str, *names: str) -> None:
        """Check that there are volumes of these names.

        Raises:
            ApiError: There is no such volume.
        """
        since = time.monotonic() - _SEEN_SECONDS
        wanted = [name for name in dict.fromkeys(names) if self._seen.get(_place(key, name), 0.0) < since]
        known = await self.names(key) if wanted else []
        for name in wanted:
            if name not in known:
                raise ApiError(404, f"volume '{name}' not found")
            self._see(key, name)

    async def create(self, key: str, name: str) -> None:
        """Make a volume.

        Raises:
            ApiError: There is one of that name, or no volume can have it.
        """
        if NAME.fullmatch(name) is None:
            raise ApiError(400, "the name of a volume is 1 to 100 letters, digits, '_' and '-'")
        async with self._box(key, _REGISTRY) as box:
            try:
                await act(box, "make", f"/{name}", None, None, None, False)
            except FileExistsError:
                raise ApiError(409, f"volume '{name}' already exists") from None

    async def delete(self, key: str, name: str) -> None:
        """Delete a volume with all that is in it."""
        self._seen = {place: at for place, at in self._seen.items() if place[1] != name}
        async with self._box(key, name) as box:
            await act(box, "empty")
            sandbox_id = box.sandbox_id
        async with self._clients.client(key) as mesh:
            await mesh.sandboxes.kill(sandbox_id)
        async with self._box(key, _REGISTRY) as box:
            with suppress(FileNotFoundError):
                await act(box, "remove", f"/{name}")

    def _see(self, key: str, name: str) -> None:
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[_place(key, name)] = time.monotonic()

    @asynccontextmanager
    async def open(self, key: str, name: str) -> AsyncGenerator[SandboxAsync]:
        """Yield a sandbox that has a volume at PLACE.

        Raises:
            ApiError: There is no such volume.
        """
        await self.check(key, name)
        async with self._box(key, name) as box:
            yield box

    @asynccontextmanager
    async def _box(self, key: str, name: str) -> AsyncGenerator[SandboxAsync]:
        options: Options = {
            "volumes": {PLACE: name},
            "network": "none",
            "labels": {_LABEL: name},
            "idle_timeout": _IDLE_SECONDS,
            "ttl": _SECONDS,
        }
        async with self._clients.client(key) as mesh:
            session = await mesh.sessions.connect(f"{_LABEL}-{name}", sandbox_type="base", **options)
        (sandbox_id,) = session.sandboxes.values()
        async with SandboxAsync(sandbox_id, base_url=self._clients.address, bearer_token=key) as box:
            yield box


def _place(key: str, name: str) -> tuple[str, str]:
    return hashlib.sha256(key.encode()).hexdigest(), name


async def act(box: SandboxAsync, name: str, *arguments: object) -> Any:
    """Run an operation in a volume, with a path as its first argument.

    Raises:
        OSError: The sandbox's system refuses it.
    """
    command = ["python3", "-I", "-c", _PROGRAM, json.dumps([name, arguments]), PLACE]
    async with await box.processes.start(command) as process:
        output = b"".join([event.data async for event in process if isinstance(event, Output)])
    return result_of(output, "the volume could not be looked into")
