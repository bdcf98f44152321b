"""Removes what private meshes left that were killed: their lock is free, so nobody uses it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

import structlog

from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.paths import MeshPaths

PREFIX = "private-"
STARTING_SECONDS = 10.0

log = structlog.get_logger()


async def sweep_private(settings: MeshSettings) -> None:
    """End and remove everything of every private mesh of this user whose process is dead."""
    for folder in sorted((settings.state_directory / "meshes").glob(f"{PREFIX}*")):
        paths = MeshPaths(folder.name, settings.state_directory, settings.runtime_directory)
        if folder.name != settings.mesh_id and _is_free(paths):
            log.info("a dead private mesh is removed", mesh_id=folder.name)
            await sweep_state(paths)
            remove(paths)


def remove(paths: MeshPaths) -> None:
    """Remove a mesh's directories."""
    for folder in (paths.runtime, paths.state):
        shutil.rmtree(folder, ignore_errors=True)


def _is_free(paths: MeshPaths) -> bool:
    try:
        descriptor = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _is_old(paths.state)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return _is_old(paths.lock)


def _is_old(path: Path) -> bool:
    # A mesh that starts at this moment made its file and has not locked it yet.
    try:
        return time.time() - path.stat().st_mtime > STARTING_SECONDS
    except FileNotFoundError:
        return False
