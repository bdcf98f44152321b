"""Directories of builds below a store's: of each build that runs one, and the caches of commands."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sandmeshd.images.file_locks import locked, try_lock
from sandmeshd.runtime.user_namespaces.removal import remove_tree

_BUILDS: Final = "builds"
_CACHES: Final = "caches"
_LOCK: Final = ".lock"


@asynccontextmanager
async def build_folder(store: Path) -> AsyncGenerator[Path]:
    """Yield a directory for one build, removed with the block; what killed builds have left is removed first."""
    builds = store / _BUILDS
    builds.mkdir(exist_ok=True)
    await asyncio.to_thread(remove_abandoned, store)
    name = secrets.token_hex(8)
    lock = try_lock(builds / f"{name}{_LOCK}")
    folder = builds / name
    try:
        folder.mkdir()
        yield folder
    finally:
        await asyncio.shield(asyncio.to_thread(remove_tree, folder))
        (builds / f"{name}{_LOCK}").unlink()
        if lock is not None:
            os.close(lock)


def remove_abandoned(store: Path) -> None:
    """Remove the directories of builds that were killed."""
    for mark in (store / _BUILDS).glob(f"*{_LOCK}"):
        lock = try_lock(mark)
        if lock is not None:
            remove_tree(mark.with_suffix(""))
            mark.unlink(missing_ok=True)
            os.close(lock)


@asynccontextmanager
async def cache_folder(store: Path, name: str, *, exclusive: bool) -> AsyncGenerator[Path]:
    """Yield the directory of a cache, which others may use at the same time unless it is to be `exclusive`."""
    caches = store / _CACHES
    caches.mkdir(exist_ok=True)
    folder = caches / hashlib.sha256(name.encode()).hexdigest()[:32]
    mark = folder.with_suffix(_LOCK)
    async with locked(mark, shared=not exclusive):
        os.utime(mark)
        folder.mkdir(exist_ok=True)
        yield folder


def remove_caches(store: Path, unused_seconds: float) -> None:
    """Remove caches that no build uses, and none has within a time."""
    for mark in (store / _CACHES).glob(f"*{_LOCK}"):
        lock = try_lock(mark) if time.time() - mark.stat().st_mtime >= unused_seconds else None
        if lock is not None:
            remove_tree(mark.with_suffix(""))
            mark.unlink(missing_ok=True)
            os.close(lock)
