"""The map of a user namespace in which sandboxes get their own uids."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from sandmeshd.drivers.bubblewrap.pipes import Pipe, parse, read_object
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.agent_config import USER_ID
from sandmeshd.runtime.user_namespaces.subordinate import write_maps


class UidMap:
    """The map of a user namespace of bwrap's, which has the uids of sandboxes; none unless it is `wanted`.

    bwrap cannot write such a map without privileges: it says which process waits for it, and this one writes it.
    """

    def __init__(self, settings: BubblewrapSettings, *, wanted: bool) -> None:
        self._settings = settings
        self._info = Pipe.new() if wanted else None
        self._mapped = Pipe.new() if wanted else None

    def theirs(self) -> tuple[int, ...]:
        """Return the descriptors that bwrap inherits: where it writes, and where it reads."""
        return (self._info.writer, self._mapped.reader) if self._info and self._mapped else ()

    def close_theirs(self) -> None:
        """Close this process's copies of what bwrap has inherited."""
        if self._info and self._mapped:
            self._info.close_writer()
            self._mapped.close_reader()

    async def write(self) -> None:
        """Write the map when the namespace is there, and let bwrap go on; one that ended says why in its output."""
        if not self._info or not self._mapped:
            return
        pid = parse(await read_object(self._info.reader)).get("child-pid")
        if isinstance(pid, int):
            await asyncio.to_thread(_write_maps, self._settings, pid)
            os.write(self._mapped.writer, b"1")

    def close(self) -> None:
        """Close what is open."""
        for pipe in (self._info, self._mapped):
            if pipe is not None:
                pipe.close()


def _write_maps(settings: BubblewrapSettings, pid: int) -> None:
    """Write the maps of a process's user namespace: who starts sandboxes has the uid of user code, and may take theirs.

    Raises:
        OSError: The process has ended, or has no separate user namespace, or the uids are not granted.
    """
    uids = settings.uid_range
    if os.geteuid() != 0:
        write_maps(pid, USER_ID, uids)
        return
    for name, own in (("uid_map", settings.host_uid), ("gid_map", settings.host_gid)):
        lines = f"{USER_ID} {own} 1\n{uids.start} {uids.start} {len(uids)}\n"
        Path(f"/proc/{pid}/{name}").write_text(lines)
