"""Storage of workspaces in a local directory or an object storage: atomic, checked and incremental."""

from sandmeshd.storage.app import open_storage
from sandmeshd.storage.folders import Folders, SavedWorkspace, open_folders
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import Saved, Snapshots

__all__ = ["Folders", "Saved", "SavedWorkspace", "Snapshots", "StorageSettings", "open_folders", "open_storage"]
