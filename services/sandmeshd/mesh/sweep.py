"""Removes what private meshes left that were killed: their lock is free, so it is unused."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import structlog

from sandmeshd.drivers.api.registry import find_drivers
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.locks import is_free
from sandmeshd.runtime.paths import LOCAL_NODE, MeshPaths

PREFIX = "private-"
STARTING_SECONDS = 10.0

log = structlog.get_logger()


async def sweep_private(settings: MeshSettings) -> None:
    """End and remove everything of every private mesh of this user whose process is dead."""
    for folder in sorted((settings.state_directory / "meshes").glob(f"{PREFIX}*")):
        paths = replace(settings.paths, mesh_id=folder.name, node=LOCAL_NODE)
        if folder.name != settings.mesh_id and _is_dead(paths):
            log.info("a dead private mesh is removed", mesh_id=folder.name)
            for plugin in find_drivers().values():
                if plugin.sweep is not None:
                    await plugin.sweep(paths)
            remove(paths)


def remove(paths: MeshPaths) -> None:
    """Remove a mesh's directories."""
    for folder in (paths.runtime, paths.workspaces, paths.state):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _is_dead(paths: MeshPaths) -> bool:
    try:
        return is_free(paths.lock)
    except FileNotFoundError:
        # It is being made at this moment, or its maker died before it had a lock.
        return _is_old(paths.state)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > STARTING_SECONDS
    except FileNotFoundError:
        return False
