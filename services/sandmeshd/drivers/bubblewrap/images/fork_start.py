"""The start of a sandbox whose root is an image: a spare, or a new one by a zygote."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, Groups
from sandmeshd.drivers.bubblewrap.identity import UidLease, release
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRange, IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import (
    Binds,
    ImagePlan,
    ImageRoot,
    describe_entry,
    describe_root,
    make_folder,
    note_python,
    scratch,
)
from sandmeshd.drivers.bubblewrap.images.zygotes import VARIABLES, key_of
from sandmeshd.drivers.bubblewrap.requirements import START
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import HostPlace, Recipe, SpawnKind, request_spawn
from sandmeshd.drivers.bubblewrap.spawns.spares import Spares
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.starts.exec_start import failed, note_uid
from sandmeshd.drivers.bubblewrap.starts.zygote_start import MAX_CONCURRENT, ended_spawn_on_error
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, SpawnFailed, ZygoteKey, Zygotes
from sandmeshd.drivers.node.agent_config import encode_config
from sandmeshd.drivers.node.images.environment import ImageEnvironments
from sandmeshd.drivers.node.records import Folder


@dataclass(frozen=True)
class ImageKind(SpawnKind):
    """What a sandbox with an image has from its first moment on."""

    root: ImageRoot
    processes: int
    data: tuple[tuple[Path, str], ...]
    scratch: tuple[str, ...]


class ImageHold:
    """The lock that keeps an image's layers."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def descriptor(self) -> int:
        """Return its descriptor.

        Raises:
            SpawnFailed: It was closed: nothing is wanted of the image any more.
        """
        if self._descriptor < 0:
            raise SpawnFailed("its image is no longer wanted")
        return self._descriptor

    def copy(self) -> ImageHold:
        """Return another, which the caller closes."""
        return ImageHold(os.dup(self.descriptor()))

    def close(self) -> None:
        """Release the image."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """What a sandbox of a kind is spawned from."""

    root: ImageRoot
    processes: int
    """The most that it may have."""
    hold: ImageHold

    @property
    def zygote(self) -> ZygoteKey:
        """The key of the zygote that spawns it."""
        return key_of(self.mounts, self.owner)

    @property
    def kind(self) -> ImageKind:
        """The kind of sandbox that it makes."""
        own = (self.root, self.processes, self.mounts.data, self.mounts.scratch)
        return ImageKind(self.zygote, self.limits, self.mounts.disk_bytes, self.mounts.scratch_bytes, *own)

    def kept(self) -> ImageRecipe:
        """Return another, which keeps the image until it is closed."""
        return replace(self, hold=self.hold.copy())

    def close(self) -> None:
        """Release the image."""
        self.hold.close()


class ImageForkStarter:
    """Starts the sandboxes of one driver that have images: see `ForkMode`."""

    def __init__(
        self,
        settings: BubblewrapSettings,
        agent_filter: bytes,
        groups: Groups,
        ranges: IdRanges,
        environments: ImageEnvironments,
        zygotes: Zygotes,
    ) -> None:
        self._settings = settings
        self._filter = b64encode(agent_filter).decode()
        self._groups = groups
        self._ranges = ranges
        self._environments = environments
        self._zygotes = zygotes
        self._spares = Spares[ImageRecipe](settings, zygotes, self, settings.image_idle)
        zygotes.on_retirement = self._spares.forget
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    def needs_exec(self, plan: ImagePlan) -> str:
        """Return what of a sandbox requires a separate program; empty if a zygote can spawn it."""
        return f"the setting {START} of its template" if plan.own_start else ""

    async def start(self, plan: ImagePlan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`.

        Raises:
            SpawnFailed: No zygote can be started, or the kernel refuses what spawning requires.
        """
        line = encode_config(plan.config)
        async with ended_spawn_on_error(plan.folder):
            key, _ = self._zygotes.claim(key_of(plan.mounts, plan.owner))
            own = (replace(plan.image, hold=-1), plan.config.max_processes, ImageHold(plan.image.hold))
            recipe = ImageRecipe(plan.mounts, VARIABLES, plan.limits, key.owner, *own)
            spare = self._spares.take(plan, recipe.kind)
            if spare is not None:
                return await self._finish(spare, line, recipe, plan)
            zygote = await self._zygotes.of(plan.mounts, key)
            binds = await self._environments.binds(plan.mounts.environment)
            async with self._slots:
                return await self._finish(self._request(plan, recipe, binds, zygote), line, recipe, plan)

    async def _finish(self, spawn: Spawn, line: bytes, recipe: ImageRecipe, plan: ImagePlan) -> int | None:
        seconds = self._settings.start_timeout
        with closing(spawn):
            try:
                async with asyncio.timeout(seconds):
                    await spawn.run(line)
            except TimeoutError:
                raise failed(spawn.folder, f"its agent did not listen within {seconds:g} s") from None
            note_python(plan, spawn.said)
            self._spares.want(recipe.kept())
            return spawn.detach_config() if self._settings.ends_with_driver else None

    def _request(self, plan: ImagePlan, recipe: ImageRecipe, binds: Binds, zygote: RunningZygote) -> Spawn:
        with closing(self._ranges.lease()) as ids:
            make_folder(plan.folder, ids)
            note_uid(plan.record, ids.first)
            plan.record.write(plan.folder)
            group = self._groups.make(plan.folder, plan.limits)
            return self._requested(_place(plan.folder, group, ids), ids, recipe, binds, zygote)

    async def spawn(self, folder: Folder, recipe: ImageRecipe, zygote: RunningZygote) -> Spawn:
        """Make a folder and request a sandbox there: see `SpareSpawner`."""
        binds = await self._environments.binds(recipe.mounts.environment)
        with closing(self._ranges.lease()) as ids:
            make_folder(folder, ids)
            group = self._groups.make(folder, recipe.limits)
            return self._requested(_place(folder, group, ids), ids, recipe, binds, zygote)

    def _requested(
        self, place: HostPlace, ids: IdRange, recipe: ImageRecipe, binds: Binds, zygote: RunningZygote
    ) -> Spawn:
        body = {
            **describe_root(place.folder, recipe.root, recipe.mounts, self._ranges.inner_maps(ids), binds),
            **scratch(recipe.mounts, self._settings.scratch_bytes),
            "entry": describe_entry(recipe.root, recipe.processes),
            "filter": self._filter,
            "counted": place.group is not None and "memory" in place.group.folders,
        }
        return request_spawn(place, body, zygote, (recipe.hold.descriptor(),))

    async def prewarm(self, recipe: Recipe) -> None:
        """Start the zygote of such sandboxes, unless it runs.

        Raises:
            SpawnFailed: It cannot be started.
        """
        await self._zygotes.of(recipe.mounts, key_of(recipe.mounts, recipe.owner))

    async def release(self, folder: Folder) -> None:
        """Remove what a sandbox without processes has outside of its folder."""
        self._ranges.release_of(folder)
        await release(folder)

    async def close(self) -> None:
        """Release the zygotes and end the spares; sandboxes live on."""
        await self._spares.close()
        await self._zygotes.close()


def _place(folder: Folder, group: Group | None, ids: IdRange) -> HostPlace:
    return HostPlace(folder, group, UidLease(ids.first, ids.first, ids.lock))
