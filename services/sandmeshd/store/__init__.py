"""The Redis-protocol store: what all processes of a mesh share."""

from __future__ import annotations

from sandmeshd.store.app import open_store
from sandmeshd.store.client import Store
from sandmeshd.store.server_risks import Risk, read_risks
from sandmeshd.store.settings import StoreSettings

__all__ = ["Risk", "Store", "StoreSettings", "open_store", "read_risks"]
