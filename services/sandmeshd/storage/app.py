"""The composition root of the storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.errors import InvalidArgument
from sandmeshd.storage.objects import FAILURES, Objects, failure_detail
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import Snapshots


@asynccontextmanager
async def open_storage(settings: StorageSettings) -> AsyncGenerator[Snapshots]:
    """Open the saved workspaces; a local directory is created, for this user alone.

    Raises:
        InvalidArgument: The settings are not what the service needs.
        OSError: The directory cannot be created.
    """
    if settings.service == "local":
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        objects = Objects(settings)
    except (*FAILURES, ValueError) as error:
        raise InvalidArgument(f"the storage {settings.service} cannot be used: {failure_detail(error)}") from None
    yield Snapshots(objects, settings.limit_bytes, settings.concurrency)
