"""Copies directories to and from the storage of workspaces."""

from __future__ import annotations

from pathlib import Path

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.storage.command import WorkspaceOptions
from sandmeshd.storage import SavedWorkspace, SaveSize, StorageSettings, open_folders


async def upload_directory(workspace: WorkspaceOptions, folder: Path) -> SaveSize:
    """Save a directory and return what was saved.

    Raises:
        InvalidArgument: The settings name no storage.
    """
    async with open_folders(_storage_settings(workspace)) as folders:
        return await folders.upload_folder(folder, _saved_name(workspace))


async def download_directory(workspace: WorkspaceOptions, folder: Path) -> None:
    """Copy a saved directory into a new one.

    Raises:
        InvalidArgument: The settings name no storage.
    """
    async with open_folders(_storage_settings(workspace)) as folders:
        await folders.download_folder(_saved_name(workspace), folder)


def _storage_settings(workspace: WorkspaceOptions) -> StorageSettings:
    found = read_settings(workspace.config).storage
    if found is None:
        fix = "set SANDMESH_STORAGE_FOLDER, or SANDMESH_FILE_SYSTEM and its bucket, or name a file that does (--config)"
        raise InvalidArgument(f"the settings name no storage: {fix}", {"fix": fix})
    return found


def _saved_name(workspace: WorkspaceOptions) -> str | SavedWorkspace:
    if workspace.session is None:
        return workspace.name or ""
    return SavedWorkspace(workspace.user, workspace.session, workspace.kind)
