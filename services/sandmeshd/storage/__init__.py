"""Keeps workspaces in a local directory or an object storage: what is saved is whole, checked and incremental."""

from sandmeshd.storage.app import open_storage
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import Saved, Snapshots

__all__ = ["Saved", "Snapshots", "StorageSettings", "open_storage"]
