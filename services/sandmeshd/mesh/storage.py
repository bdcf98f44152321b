"""Workspaces that are saved and restored, where the settings name a storage."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.decorators import KeepingDriver
from sandmeshd.storage import StorageSettings, open_storage

if TYPE_CHECKING:
    from sandmeshd.mesh.settings import MeshSettings


@asynccontextmanager
async def keeping(driver: Driver, settings: StorageSettings | None) -> AsyncGenerator[Driver]:
    """Give the driver, with a storage where there is one."""
    if settings is None:
        yield driver
        return
    async with open_storage(settings) as snapshots:
        yield KeepingDriver(driver, snapshots)


def read_storage(settings: MeshSettings) -> StorageSettings | None:
    """Give the storage's own settings, None where workspaces are not kept.

    Raises:
        InvalidArgument: They do not fit together; the message names the variable.
    """
    service = settings.file_system or ("local" if settings.storage_folder is not None else None)
    if service is None:
        _check_unused(settings)
        return None
    if service == "local" and settings.storage_folder is None:
        raise InvalidArgument("SANDMESH_FILE_SYSTEM=local needs a directory: give SANDMESH_STORAGE_FOLDER")
    if service == "local" and settings.storage_folder is not None and not settings.storage_folder.is_absolute():
        raise InvalidArgument(f"SANDMESH_STORAGE_FOLDER is {settings.storage_folder}: give an absolute path")
    root = (settings.storage_folder or Path()) / settings.mesh_id
    try:
        return StorageSettings(
            service=service,
            folder=Path("/") / root,
            bucket=settings.storage_bucket,
            endpoint=settings.storage_endpoint,
            region=settings.storage_region,
            key_id=settings.storage_key_id,
            key_secret=settings.storage_key_secret,
            limit_bytes=settings.storage_limit,
        )
    except ValidationError as error:
        said = "; ".join(str(problem["msg"]) for problem in error.errors(include_url=False, include_input=False))
        raise InvalidArgument(f"the storage of workspaces cannot be used: {said}") from None


def check_workspaces(settings: MeshSettings, driver: str) -> None:
    """Refuse a directory for workspaces in use where the driver has them elsewhere.

    Raises:
        InvalidArgument: One is stated, and the driver is not bubblewrap.
    """
    if settings.workspaces_directory is not None and driver != "bubblewrap":
        fix = f"leave it out: the driver {driver} keeps workspaces in its containers"
        stated = "SANDMESH_WORKSPACES_DIRECTORY (SANDMESH_DEFAULT_MOUNT_DIR)"
        raise InvalidArgument(f"{stated} is {settings.workspaces_directory}: {fix}", {"fix": fix})


def _check_unused(settings: MeshSettings) -> None:
    stated = [name for name in ("bucket", "endpoint", "region") if getattr(settings, f"storage_{name}")]
    if stated:
        name = f"SANDMESH_STORAGE_{stated[0].upper()}"
        raise InvalidArgument(f"{name} says where workspaces are saved, but not in what: give SANDMESH_FILE_SYSTEM")
