"""A sandbox's files as AgentScope Runtime's server described and changed them."""

from __future__ import annotations

import io
import posixpath
from typing import Any, Final, Protocol

from sandmesh import SandboxAsync

_WORKSPACE: Final = "/workspace"
_KINDS: Final = {"directory": "dir", "file": "file", "symlink": "symlink"}
_DEEPEST: Final = 200
"""The most levels that a sandbox lists in one call."""

Entry = dict[str, Any]


class _EntryInfo(Protocol):
    """What an entry is made of."""

    @property
    def type(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...


def describe(path: str, own: _EntryInfo, target: _EntryInfo | None = None) -> Entry:
    """Return an entry, for a link with the type of what it leads to."""
    absolute = _absolute(path)
    kind = _KINDS.get((target or own).type, "other")
    size = own.size if kind == "file" else None
    name, milliseconds = posixpath.basename(absolute), own.mtime_ns // 1_000_000
    return {"path": absolute, "name": name, "type": kind, "size": size, "mtime_ms": milliseconds}


async def read_text(box: SandboxAsync, path: str) -> str:
    """Return a file's text; its line ends become `\\n`."""
    # The old server opened files in text mode.
    return io.IncrementalNewlineDecoder(None, translate=True).decode(await box.fs.read(path), final=True)


async def list_entries(box: SandboxAsync, path: str, depth: int) -> list[Entry]:
    """List a directory; links are what they lead to, and those that lead nowhere are left out."""
    entries: list[Entry] = []
    for info in await box.fs.list(path, min(depth, _DEEPEST)):
        inner = posixpath.join(path, info.path)
        if info.type != "symlink":
            entries.append(describe(inner, info))
        elif await box.fs.exists(inner):
            entries.append(describe(inner, info, await box.fs.stat(inner)))
    return entries


async def move(box: SandboxAsync, source: str, destination: str) -> Entry:
    """Rename an entry, over a file that exists, into a directory that is created."""
    await box.fs.stat(source)
    await box.fs.mkdir(posixpath.dirname(_absolute(destination)))
    await box.fs.move(source, destination, replace=True)
    own = await box.fs.stat(destination, follow=False)
    return describe(destination, own, await box.fs.stat(destination) if own.type == "symlink" else None)


async def make_directory(box: SandboxAsync, path: str) -> bool:
    """Create a directory and its parents; return False where it exists."""
    if await box.fs.exists(path) and (await box.fs.stat(path)).type == "directory":
        return False
    await box.fs.mkdir(path)
    return True


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join(_WORKSPACE, path))
