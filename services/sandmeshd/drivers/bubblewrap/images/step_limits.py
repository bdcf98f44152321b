"""What a step of a build may use: memory and processes by control groups, and the bytes that it leaves on disk."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sandmesh.errors import CapabilityMissing, TooLarge
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import USER, Group, GroupLimits, Groups, remove_groups
from sandmeshd.drivers.bubblewrap.cgroups.v1 import VersionOne
from sandmeshd.drivers.bubblewrap.cgroups.v2 import VersionTwo
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.records import Folder
from sandmeshd.images.settings import ImageSettings

_MEMORY: Final = 4 << 30
_PROCESSES: Final = 4096
_PAUSE_SECONDS: Final = 1.0
_SHARE: Final = 10
"""The size on disk is counted for at most one part in so many of the time."""


@dataclass(frozen=True)
class StepGroup:
    """The control group of a step, if this machine has any."""

    group: Group | None

    @property
    def join_command(self) -> list[str]:
        """The start of a command line that runs the rest in the group."""
        return self.group.join_command(USER) if self.group else []

    @property
    def killed(self) -> int:
        """How many processes were killed since the memory was full."""
        return self.group.usage().out_of_memory_kills if self.group else 0


class StepLimits:
    """The limits of the steps of one runner."""

    def __init__(self, settings: BubblewrapSettings) -> None:
        self._images = settings.image_store or ImageSettings()
        self._paths = replace(settings.paths, mesh_id="builds")
        self._groups: Groups | None = None

    @property
    def most_bytes(self) -> int:
        """The most bytes that a step may leave on disk."""
        return self._images.image_bytes

    @asynccontextmanager
    async def group(self, folder: Path) -> AsyncGenerator[StepGroup]:
        """Yield the group of a step in a folder; what is in it ends with the block.

        Raises:
            CapabilityMissing: A limit is set, and nothing on this machine enforces it.
        """
        if self._groups is None:
            self._groups = await asyncio.to_thread(Groups, self._paths, (VersionTwo(), VersionOne()))
            await self._groups.sweep_where(_is_left)
        self._check(self._groups)
        memory, processes = self._images.image_build_memory, self._images.image_build_processes
        limits = GroupLimits(memory_bytes=_MEMORY if memory is None else memory, pids=processes or _PROCESSES)
        place = Folder(f"step-{os.getpid()}-{secrets.token_hex(8)}", folder, folder)
        group = self._groups.make(place, limits)
        try:
            yield StepGroup(group)
        finally:
            await asyncio.shield(remove_groups(place))

    def _check(self, groups: Groups) -> None:
        own = {"memory": self._images.image_build_memory, "pids": self._images.image_build_processes}
        names = {"memory": "SANDMESH_IMAGE_BUILD_MEMORY", "pids": "SANDMESH_IMAGE_BUILD_PROCESSES"}
        for name, value in own.items():
            if value is not None and name not in groups.enforceable:
                fix = f"unset {names[name]}, or run where control groups can be made (sandmesh doctor)"
                raise CapabilityMissing(f"nothing here limits the {name} of builds: {fix}", {"needs": name, "fix": fix})


def _is_left(name: str) -> bool:
    """Return whether a group is that of a build that was killed."""
    kind, _, rest = name.partition("-")
    return kind == "step" and not Path("/proc", rest.partition("-")[0]).exists()


async def watch_size(directory: Path, most: int) -> None:
    """Count what is below a directory again and again, until it is too large.

    Raises:
        TooLarge: It has more than `most` bytes on disk.
    """
    pause = _PAUSE_SECONDS
    while True:
        await asyncio.sleep(pause)
        began = time.monotonic()
        if await asyncio.to_thread(_size, directory, most) > most:
            fix = "write less in one step, or raise SANDMESH_IMAGE_BYTES"
            raise TooLarge(f"a step has written more than {most} bytes: {fix}", {"fix": fix})
        pause = max(_PAUSE_SECONDS, _SHARE * (time.monotonic() - began))


def _size(directory: Path, most: int) -> int:
    """Return the bytes on disk, at least as far as they are more than `most`; links are not followed."""
    total, pending = 0, [str(directory)]
    while pending and total <= most:
        # What goes while it is looked at counts for nothing.
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total
