"""Opens a storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.errors import InvalidArgument
from sandmeshd.storage.objects import FAILURES, Objects, said
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import Snapshots


@asynccontextmanager
async def open_storage(settings: StorageSettings) -> AsyncGenerator[Snapshots]:
    """Give the workspaces that are saved there; a local directory is made, for this user alone.

    Raises:
        InvalidArgument: The settings are not what the service needs.
        OSError: The directory cannot be made.
    """
    if settings.service == "local":
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        objects = Objects(settings)
    except (*FAILURES, ValueError) as error:
        raise InvalidArgument(f"the storage {settings.service} cannot be used: {said(error)}") from None
    yield Snapshots(objects, settings.limit_bytes, settings.concurrency)
