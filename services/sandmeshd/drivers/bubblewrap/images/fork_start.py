"""The start of a sandbox whose root is an image, by a zygote."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import closing

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Groups
from sandmeshd.drivers.bubblewrap.exec_start import failed, note_uid
from sandmeshd.drivers.bubblewrap.identity import UidLease, release
from sandmeshd.drivers.bubblewrap.images.environment import ImageEnvironments
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import ImagePlan, describe_entry, describe_root, make_folder
from sandmeshd.drivers.bubblewrap.images.zygotes import key_of
from sandmeshd.drivers.bubblewrap.requirements import START
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import HostPlace, Recipe, request_spawn
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.zygote_start import MAX_CONCURRENT, ended_spawn_on_error
from sandmeshd.drivers.bubblewrap.zygotes import RunningZygote, Zygotes
from sandmeshd.drivers.node.agent_config import encode_config
from sandmeshd.drivers.node.records import Folder


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
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    def needs_exec(self, plan: ImagePlan) -> str:
        """Return what of a sandbox requires a program of its own; empty if a zygote can spawn it."""
        return f"the setting {START} of its template" if plan.own_start else ""

    async def start(self, plan: ImagePlan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`.

        Raises:
            SpawnFailed: No zygote can be started, or the kernel refuses what spawning requires.
        """
        line = encode_config(plan.config)
        binds = await self._environments.binds(plan.mounts.environment)
        async with ended_spawn_on_error(plan.folder):
            key, _ = self._zygotes.claim(key_of(plan.mounts, plan.owner))
            zygote = await self._zygotes.of(plan.mounts, key)
            async with self._slots:
                with closing(self._request(plan, binds, zygote)) as spawn:
                    await self._run(spawn, line, plan.folder)
                    return spawn.detach_config() if self._settings.ends_with_driver else None

    async def _run(self, spawn: Spawn, line: bytes, folder: Folder) -> None:
        seconds = self._settings.start_timeout
        try:
            async with asyncio.timeout(seconds):
                await spawn.run(line)
        except TimeoutError:
            raise failed(folder, f"its agent did not listen within {seconds:g} s") from None

    def _request(self, plan: ImagePlan, binds: list[tuple[str, str, bool]], zygote: RunningZygote) -> Spawn:
        with closing(self._ranges.lease()) as ids:
            make_folder(plan.folder, ids)
            note_uid(plan.record, ids.first)
            plan.record.write(plan.folder)
            group = self._groups.make(plan.folder, plan.limits)
            body = {
                **describe_root(plan, self._ranges.inner_maps(ids), binds, self._settings.scratch_bytes),
                "entry": describe_entry(plan),
                "filter": self._filter,
                "counted": group is not None and "memory" in group.folders,
            }
            place = HostPlace(plan.folder, group, UidLease(ids.first, ids.first, ids.lock))
            return request_spawn(place, body, zygote, (plan.image.hold,))

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
        """Release the zygotes; sandboxes live on."""
        await self._zygotes.close()
