"""Removes what a sandbox without processes left on the host."""

from __future__ import annotations

import secrets
from contextlib import suppress

from sandmeshd.drivers.node.records import GONE, Folder, MeshFolders
from sandmeshd.runtime.user_namespaces.removal import remove_tree


def discard(folder: Folder) -> None:
    """Remove a sandbox's folders. It is gone with the first step; `finish_removals` does the rest after a kill."""
    remove_tree(folder.sockets)
    gone = folder.root.with_name(f"{GONE}{secrets.token_hex(8)}")
    with suppress(FileNotFoundError):
        folder.root.rename(gone)
        remove_tree(gone)


def finish_removals(folders: MeshFolders) -> None:
    """Remove what a killed process had begun to remove."""
    for gone in folders.discarded():
        remove_tree(gone)
