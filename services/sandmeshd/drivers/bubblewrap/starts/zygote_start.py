"""The start of a sandbox by a zygote, which has everything imported and gives it new namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import replace

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Groups
from sandmeshd.drivers.bubblewrap.identity import UidLeases, release
from sandmeshd.drivers.bubblewrap.requirements import START
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.spawns.requests import HostPlace, Recipe, request_spawn, sandbox_body
from sandmeshd.drivers.bubblewrap.spawns.spares import Spares
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan, failed, make_folder, note_uid
from sandmeshd.drivers.bubblewrap.starts.zygotes import UNCLAIMED, RunningZygote, ZygoteKey, Zygotes
from sandmeshd.drivers.node.agent_config import basic_variables, encode_config
from sandmeshd.drivers.node.processes import end, to_the_end
from sandmeshd.drivers.node.records import Folder
from sandmeshd.templates import Template

MAX_CONCURRENT = 16
"""The most sandboxes that are started at a time: more would only wait for processors, holding descriptors."""

EARLY = ("LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "HOME", "IPYTHON", "JUPYTER", "PATH", "VIRTUAL_ENV")
"""Prefixes of variables that an interpreter or what it imports reads once: a zygote has read them already."""


def shared_variables(template: Template) -> dict[str, str]:
    """Return the variables of a template's zygote; the others are each sandbox's, so that templates share a zygote."""
    early = {name: value for name, value in template.variables.items() if name.startswith(EARLY)}
    return {**basic_variables(template), **early}


def _needs_exec(plan: Plan) -> str:
    if plan.own_start:
        return f"the setting {START} of its template"
    if plan.mounts.host_directories:
        # A zygote sees only what all of its sandboxes may see of the host.
        return "directories of the host"
    variables = plan.config.environment
    changed = [name for name in variables if name.startswith(EARLY) and variables[name] != plan.variables.get(name)]
    return ", ".join(f"the environment variable {name}" for name in sorted(changed))


class ZygoteStarter:
    """Starts the sandboxes of one driver: a spare, or a new one by the zygote for its mounts and variables."""

    def __init__(self, settings: BubblewrapSettings, zygotes: Zygotes, groups: Groups, leases: UidLeases) -> None:
        self._settings = settings
        self._groups = groups
        self._leases = leases
        self._zygotes = zygotes
        self._spares = Spares[Recipe](settings, zygotes, self)
        zygotes.on_retirement = self._spares.forget
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`.

        Raises:
            SpawnFailed: No zygote can be started, or the kernel refuses what spawning requires.
        """
        line = encode_config(plan.config)
        async with ended_spawn_on_error(plan.folder):
            plan = self._claimed(plan)
            spare = self._spares.take(plan, Recipe.of(plan).kind)
            if spare is not None:
                return await self._finish(spare, line, plan)
            zygote = await self._zygotes.of(plan.mounts, ZygoteKey.of(plan.mounts, plan.variables, plan.owner))
            async with self._slots:
                return await self._finish(self._request(plan, zygote), line, plan)

    def needs_exec(self, plan: Plan) -> str:
        """Return what of a sandbox requires its own bwrap; empty if a zygote can spawn it."""
        return _needs_exec(plan)

    async def release(self, folder: Folder) -> None:
        """Remove what a sandbox without processes has outside of its folder."""
        await release(folder)

    def _claimed(self, plan: Plan) -> Plan:
        """Return the plan with whose zygote spawns it; an owner's first is the one that stands by, with its spares."""
        wanted = ZygoteKey.of(plan.mounts, plan.variables, plan.owner)
        key, unclaimed = self._zygotes.claim(wanted)
        if unclaimed is not None:
            self._spares.reassign(unclaimed, key)
        return replace(plan, owner=key.owner)

    async def _finish(self, spawn: Spawn, line: bytes, plan: Plan) -> int | None:
        with closing(spawn):
            try:
                async with asyncio.timeout(self._settings.start_timeout):
                    await spawn.run(line)
            except TimeoutError:
                raise failed(
                    plan.folder, f"its agent did not listen within {self._settings.start_timeout:g} s"
                ) from None
            self._want(Recipe.of(plan))
            return spawn.detach_config() if self._settings.ends_with_driver else None

    def _request(self, plan: Plan, zygote: RunningZygote) -> Spawn:
        with closing(self._leases.lease()) as lease:
            make_folder(plan.folder, lease)
            note_uid(plan.record, lease.uid)
            plan.record.write(plan.folder)
            group = self._groups.make(plan.folder, plan.limits)
            place = HostPlace(plan.folder, group, lease)
            return request_spawn(place, sandbox_body(place, plan.mounts), zygote)

    async def spawn(self, folder: Folder, recipe: Recipe, zygote: RunningZygote) -> Spawn:
        """Make a folder and request a sandbox there: see `SpareSpawner`."""
        with closing(self._leases.lease()) as lease:
            make_folder(folder, lease)
            place = HostPlace(folder, self._groups.make(folder, recipe.limits), lease)
            return request_spawn(place, sandbox_body(place, recipe.mounts), zygote)

    async def prewarm(self, recipe: Recipe) -> None:
        """Start the zygote of such sandboxes, unless it runs, and prepare spares.

        Raises:
            SpawnFailed: It cannot be started.
        """
        if not self._zygotes.is_of_another(recipe.zygote):
            await self._zygotes.of(recipe.mounts, recipe.zygote)
            # A create may have claimed it while it started: spares for it would then start another.
            if self._zygotes.current(recipe.zygote) is not None:
                self._spares.want(recipe)

    def _want(self, recipe: Recipe) -> None:
        if self._zygotes.expects_owners(recipe.zygote):
            # Where owners take turns, the next new one finds a zygote with spares, too.
            self._spares.want(replace(recipe, owner=UNCLAIMED))
        self._spares.want(recipe)

    async def close(self) -> None:
        """Release the zygotes and end the spares; sandboxes live on."""
        await self._spares.close()
        await self._zygotes.close()


@asynccontextmanager
async def ended_spawn_on_error(folder: Folder) -> AsyncGenerator[None]:
    """End a sandbox if the block fails or is cancelled: without a pid yet, it ends as its sockets close."""
    try:
        yield
    except BaseException:
        await to_the_end(end(folder))
        raise
