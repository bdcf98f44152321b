"""Spares: sandboxes that are spawned ahead, up to where they have to know whose they are.

A spare has its namespaces, mounts, control groups, its agent and the first process of user code; it has no identity,
token or variables, and no code of a user ever ran in it. A create takes one, which moves its directories to their place
and configures it. It is in no list until then: its directories are named like those that are about to be removed, so
that the next start of the driver removes them after a kill. Its processes end with the driver, which holds the pipe for
their configuration.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog

from sandmesh.errors import InternalError, SandmeshError
from sandmeshd.drivers.bubblewrap.identity import release
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import Recipe, SpawnKind
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan, note_uid
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, SpawnFailed, ZygoteKey, Zygotes
from sandmeshd.drivers.node.processes import end, to_the_end
from sandmeshd.drivers.node.records import Folder, MeshFolders, discard

MOST_KINDS = 4
"""The kinds of sandboxes of which spares are kept: those that were created last."""

QUIET_SECONDS = 0.1
"""How long no sandbox was created before one is prepared: what follows a create is not to compete with a fork."""

LEAST_BYTES = 512 << 20
"""The memory that must be available on the machine for another spare."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Spare:
    """A sandbox that waits for its configuration."""

    folder: Folder
    spawn: Spawn
    zygote: RunningZygote

    def move(self, plan: Plan) -> Spawn:
        """Become the sandbox of a plan, except for its configuration.

        Raises:
            OSError: One of its directories was removed; nothing of it is in the plan's.
        """
        note_uid(plan.record, self.spawn.uid)
        plan.record.write(self.folder)
        # The record goes first: from then on a deletion of the sandbox finds all of it.
        self.folder.root.rename(plan.folder.root)
        try:
            self.folder.sockets.rename(plan.folder.sockets)
        except OSError:
            plan.folder.root.rename(self.folder.root)
            raise
        self.spawn.folder = plan.folder
        return self.spawn


Recipe_contra = TypeVar("Recipe_contra", bound=Recipe, contravariant=True)
SomeRecipe = TypeVar("SomeRecipe", bound=Recipe)


class SpareSpawner(Protocol[Recipe_contra]):
    """Requests what spares are made of."""

    async def spawn(self, folder: Folder, recipe: Recipe_contra, zygote: RunningZygote) -> Spawn:
        """Make a folder and request a sandbox there."""
        ...

    async def release(self, folder: Folder) -> None:
        """Remove what a sandbox without processes has outside of its folder."""
        ...


class Spares(Generic[SomeRecipe]):
    """The spares of one driver, of all kinds of roots that one spawner makes.

    With `idle` those of a kind end that many seconds after its last create.
    """

    def __init__(
        self, settings: BubblewrapSettings, zygotes: Zygotes, spawner: SpareSpawner[SomeRecipe], idle: float = 0
    ) -> None:
        self._settings = settings
        self._spawner = spawner
        self._zygotes = zygotes
        self._idle = idle
        self._folders = MeshFolders(settings.paths)
        self._count = settings.spares if settings.stands_by else 0
        self._recipes: OrderedDict[SpawnKind, SomeRecipe] = OrderedDict()
        self._waiting: dict[SpawnKind, deque[Spare]] = {}
        self._wanted = asyncio.Event()
        self._last_create = 0.0
        self._filling: asyncio.Task[None] | None = None
        self._discarding: set[asyncio.Task[None]] = set()

    def want(self, recipe: SomeRecipe) -> None:
        """Keep spares of a kind once no more are created, in place of the kind that was created longest ago.

        The recipe is closed when they are no longer wanted.
        """
        if not self._count:
            recipe.close()
            return
        self._last_create = time.monotonic()
        if former := self._recipes.pop(recipe.kind, None):
            former.close()
        self._recipes[recipe.kind] = recipe
        if self._idle:
            asyncio.get_running_loop().call_later(self._idle, self._end_idle, recipe)
        stale = [kind for kind in self._recipes if kind.zygote.agent != recipe.kind.zygote.agent]
        for kind in stale or list(self._recipes)[:-MOST_KINDS]:
            self._forget(kind)
        self._wanted.set()
        if self._filling is None:
            self._filling = asyncio.create_task(self._fill())

    def _end_idle(self, recipe: SomeRecipe) -> None:
        # Each create brings another.
        if self._recipes.get(recipe.kind) is recipe:
            self._forget(recipe.kind)

    def reassign(self, unclaimed: ZygoteKey, key: ZygoteKey) -> None:
        """Keep what a zygote that stood by has spawned for the owner that it has now."""
        for kind in [kind for kind in self._recipes if kind.zygote == unclaimed]:
            self._recipes.pop(kind).close()
            for spare in self._waiting.pop(kind, ()):
                self._waiting.setdefault(replace(kind, zygote=key), deque()).append(spare)

    def forget(self, key: ZygoteKey) -> None:
        """End the spares of a zygote that is to spawn no more, and prepare no others."""
        for kind in [kind for kind in {*self._recipes, *self._waiting} if kind.zygote == key]:
            self._forget(kind)

    def take(self, plan: Plan, kind: SpawnKind) -> Spawn | None:
        """Return a spare that has become the sandbox of a plan, except for its configuration; None: there is none."""
        self._last_create = time.monotonic()
        waiting = self._waiting.get(kind)
        while waiting:
            spare = waiting.popleft()
            # One of a zygote that became another owner's meanwhile, or was replaced, is not usable.
            if spare.spawn.waits() and spare.zygote is self._zygotes.current(kind.zygote):
                spare.spawn.unwatch()
                with suppress(OSError):
                    return spare.move(plan)
            self._discard(spare)
        return None

    async def _fill(self) -> None:
        while True:
            await self._wanted.wait()
            await self._quiet()
            self._wanted.clear()
            while (recipe := self._lacking()) and _available_bytes() >= LEAST_BYTES:
                await self._add(recipe)
                await self._quiet()

    async def _quiet(self) -> None:
        """Return when no sandbox was created for a moment: one after another, they would only wait for spares."""
        while (left := self._last_create + QUIET_SECONDS - time.monotonic()) > 0:  # noqa: ASYNC110 - nothing happens
            await asyncio.sleep(left)

    def _lacking(self) -> SomeRecipe | None:
        """Return what there are too few spares of, the last created kind first."""
        for kind, recipe in reversed(self._recipes.items()):
            if len(self._waiting.get(kind, ())) < self._count:
                return recipe
        return None

    async def _add(self, recipe: SomeRecipe) -> None:
        try:
            spare = await self._make(recipe)
        except (SpawnFailed, SandmeshError, OSError) as error:
            # Its kind is wanted again by the next create, which says more if it fails.
            log.warning("no sandbox could be prepared ahead of its create", reason=str(error))
            self._forget(recipe.kind)
            return
        self._waiting.setdefault(recipe.kind, deque()).append(spare)
        spare.spawn.watch(partial(self._on_end, spare))
        if recipe.kind not in self._recipes:
            self._forget(recipe.kind)
        log.debug("a sandbox waits for its create", folder=str(spare.folder.root))

    async def _make(self, recipe: SomeRecipe) -> Spare:
        zygote = await self._zygotes.of(recipe.mounts, recipe.zygote)
        folder = self._folders.staged(f"spare-{secrets.token_hex(8)}")
        spawn: Spawn | None = None
        try:
            spawn = await self._spawner.spawn(folder, recipe, zygote)
            async with asyncio.timeout(self._settings.start_timeout):
                await spawn.prepare()
        except BaseException:
            if spawn is not None:
                spawn.close()
            await to_the_end(self._remove(folder))
            raise
        return Spare(folder, spawn, zygote)

    def _on_end(self, spare: Spare) -> None:
        """Remove a spare that ended while it waited. The next create of its kind has another prepared."""
        next(waiting for waiting in self._waiting.values() if spare in waiting).remove(spare)
        self._discard(spare)
        log.info("a sandbox ended while it waited for its create", folder=str(spare.folder.root))

    def _forget(self, kind: SpawnKind) -> None:
        if recipe := self._recipes.pop(kind, None):
            recipe.close()
        for spare in self._waiting.pop(kind, ()):
            self._discard(spare)

    def _discard(self, spare: Spare) -> None:
        spare.spawn.close()
        task = asyncio.create_task(self._remove(spare.folder))
        self._discarding.add(task)
        task.add_done_callback(self._discarding.discard)

    async def close(self) -> None:
        """End and remove all spares, and prepare no more."""
        self._count = 0
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        for kind in list(self._waiting):
            self._forget(kind)
        if self._discarding:
            await asyncio.wait(set(self._discarding))

    async def _remove(self, folder: Folder) -> None:
        await end(folder)
        await self._spawner.release(folder)
        await asyncio.to_thread(discard, folder)


async def sweep_spares(folders: MeshFolders) -> None:
    """End the spares that a killed driver left; their directories are those whose removal is to be finished."""
    for folder in folders.all_staged():
        with suppress(InternalError):
            await end(folder)
            await release(folder)


def _available_bytes() -> int:
    """Return the memory that the machine has left for new processes, without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
