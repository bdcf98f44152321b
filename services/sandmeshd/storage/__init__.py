"""Storage of workspaces in a local directory or an object storage: atomic, checked and incremental."""

from sandmeshd.storage.app import open_storage
from sandmeshd.storage.folders import SavedWorkspace, StoredFolders, open_folders
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import SaveSize, WorkspaceSnapshots

__all__ = [
    "SaveSize",
    "SavedWorkspace",
    "StorageSettings",
    "StoredFolders",
    "WorkspaceSnapshots",
    "open_folders",
    "open_storage",
]
