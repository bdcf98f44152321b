"""What `sandmesh storage` does, once the services are loaded."""

from __future__ import annotations

from pathlib import Path

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.storage.command import Which
from sandmeshd.storage import Saved, SavedWorkspace, StorageSettings, open_folders


async def put(which: Which, folder: Path) -> Saved:
    """Save a directory."""
    async with open_folders(_settings(which)) as folders:
        return await folders.upload_folder(folder, _name(which))


async def fetch(which: Which, folder: Path) -> None:
    """Fetch what is saved."""
    async with open_folders(_settings(which)) as folders:
        await folders.download_folder(_name(which), folder)


def _settings(which: Which) -> StorageSettings:
    found = read_settings(which.config).storage
    if found is None:
        fix = (
            "give SANDMESH_STORAGE_FOLDER, or SANDMESH_FILE_SYSTEM and its bucket, or the file that has them (--config)"
        )
        raise InvalidArgument(f"no storage is named: {fix}", {"fix": fix})
    return found


def _name(which: Which) -> str | SavedWorkspace:
    return which.name or "" if which.session is None else SavedWorkspace(which.user, which.session, which.kind)
