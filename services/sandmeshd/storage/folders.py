"""Directories of this machine, uploaded to a storage and downloaded from it by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sandmesh._files.directories import DirectoryReceiver, tar_stream
from sandmesh._files.sources import pieces
from sandmesh.errors import InvalidArgument, NotFound
from sandmeshd.auth.principal import session_key, workspace_key
from sandmeshd.storage.app import open_storage
from sandmeshd.storage.settings import StorageSettings
from sandmeshd.storage.snapshots import SaveSize, WorkspaceSnapshots

LONGEST: Final = 200
_BELOW: Final = "folders"


@dataclass(frozen=True)
class SavedWorkspace:
    """Names what is saved of a session's sandbox of a type."""

    user_id: str
    session_id: str
    sandbox_type: str = "base"


Name = str | SavedWorkspace


class StoredFolders:
    """Upload directories to a storage and download them: byte for byte, incremental, checked, atomic.

    A name is any text, and never collides with a session's workspace; those are named by `SavedWorkspace`.
    """

    def __init__(self, snapshots: WorkspaceSnapshots) -> None:
        self._snapshots = snapshots

    async def upload_folder(self, source: str | Path, destination: Name) -> SaveSize:
        """Save a directory of this machine under a name, replacing what is there; one upload at a time for a name.

        Sockets, FIFOs and devices are skipped. A workspace is only replaced where no sandbox was saved there.

        Raises:
            InvalidArgument: The directory does not exist, or the name is empty or too long.
            LeaseLost: The name holds the workspace of a session that had a sandbox.
            TooLarge: It is larger than a saved workspace may be.
            StorageUnavailable: The storage did not accept it; what was there before is unchanged.
        """
        local = str(source)
        if not await asyncio.to_thread(os.path.isdir, local):
            raise InvalidArgument(f"{local!r} is not a directory of this machine", {"argument": "source"})
        async with aclosing(_stream(local)) as stream:
            return await self._snapshots.save(_key(destination), 0, stream)

    async def download_folder(self, source: Name, destination: str | Path) -> None:
        """Restore what is saved under a name to a directory; one that exists keeps what else is in it.

        Raises:
            NotFound: Nothing is saved under the name.
            InvalidArgument: The directory cannot be created; nothing of it is left.
            WorkspaceNotReady: What is saved is damaged; nothing of it is restored.
            StorageUnavailable: The storage does not answer; nothing is restored.
        """
        stream = await self._snapshots.restore(_key(source))
        if stream is None:
            raise NotFound(f"nothing is saved under {source!r}", {"name": str(source)})
        try:
            await DirectoryReceiver(str(destination), any_links=True).receive(stream)
        except OSError as error:
            detail = error.strerror or type(error).__name__
            raise InvalidArgument(f"{destination} cannot be created: {detail}", {"argument": "destination"}) from None

    async def delete_folder(self, name: Name) -> None:
        """Delete what is saved under a name, if anything is.

        Raises:
            StorageUnavailable: The storage did not accept it.
        """
        await self._snapshots.delete(_key(name))


@asynccontextmanager
async def open_folders(settings: StorageSettings) -> AsyncGenerator[StoredFolders]:
    """Open the directories that are in a storage.

    Raises:
        InvalidArgument: The settings are not what the service needs.
    """
    async with open_storage(settings) as snapshots:
        yield StoredFolders(snapshots)


async def _stream(local: str) -> AsyncGenerator[bytes]:
    async for piece in pieces(tar_stream(local, any_modes=True)):
        yield piece


def _key(name: Name) -> str:
    if isinstance(name, SavedWorkspace):
        return workspace_key(session_key(name.user_id, name.session_id), name.sandbox_type)
    # A single path segment, whatever the name has: never that of another name, and never a directory above.
    written = quote(name, safe="").replace(".", "%2E")
    if not 1 <= len(written) <= LONGEST:
        message = f"the name {name[:LONGEST]!r} is empty, or longer than {LONGEST} characters as it is stored"
        raise InvalidArgument(message, {"argument": "name"})
    return f"{_BELOW}/{written}"
