"""The composition root of the storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sandmesh.errors import InvalidArgument
from sandmeshd.runtime.full_disk import is_full
from sandmeshd.storage.objects import FAILURES, Objects, failure_detail
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import WorkspaceSnapshots


@asynccontextmanager
async def open_storage(settings: StorageSettings) -> AsyncGenerator[WorkspaceSnapshots]:
    """Open the saved workspaces; a local directory is created, for only this user.

    Raises:
        InvalidArgument: The settings are not what the service needs, or the directory cannot be created.
        OSError: The disk is full.
    """
    if settings.service == "local":
        _make(settings.root)
    try:
        objects = Objects(settings)
    except (*FAILURES, ValueError) as error:
        raise InvalidArgument(f"the storage {settings.service} cannot be used: {failure_detail(error)}") from None
    yield WorkspaceSnapshots(objects, settings.limit_bytes, settings.concurrency)


def _make(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if is_full(error):
            raise
        fix = "choose another directory by SANDMESH_STORAGE_FOLDER"
        message = f"workspaces cannot be saved in {root}: {error.strerror}: {fix}"
        raise InvalidArgument(message, {"fix": fix}) from None
