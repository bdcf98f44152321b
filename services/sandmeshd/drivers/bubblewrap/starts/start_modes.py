"""The modes of starting a sandbox, and the choice between them."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Groups
from sandmeshd.drivers.bubblewrap.settings import WayName
from sandmeshd.drivers.bubblewrap.spawns.requests import Recipe
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan_contra, StartMode
from sandmeshd.drivers.bubblewrap.starts.zygotes import SpawnFailed, ZygoteGone
from sandmeshd.drivers.node.records import Folder, discard

RETRY_SECONDS = 60.0
"""The seconds after a failed zygote start in which none is attempted."""

log = structlog.get_logger()


class ForkMode(StartMode[Plan_contra], Protocol[Plan_contra]):
    """The mode in which a zygote spawns sandboxes."""

    def needs_exec(self, plan: Plan_contra) -> str:
        """Return what of a sandbox no zygote can spawn; empty if one can."""
        ...

    async def prewarm(self, recipe: Recipe) -> None:
        """Start the zygote of such sandboxes, unless it runs.

        Raises:
            SpawnFailed: It cannot be started.
        """
        ...

    async def release(self, folder: Folder) -> None:
        """Remove what a sandbox without processes has outside of its folder."""
        ...

    async def close(self) -> None:
        """Release the zygotes; sandboxes live on."""
        ...


class StartModes(Generic[Plan_contra]):
    """Starts each sandbox in the configured mode, or in the one that works."""

    def __init__(
        self,
        mode: WayName,
        groups: Groups,
        exec_starter: StartMode[Plan_contra],
        zygote_starter: ForkMode[Plan_contra],
    ) -> None:
        self._mode = mode
        self.groups = groups
        """The control groups that this machine offers."""
        self._exec = exec_starter
        self._zygote = zygote_starter
        self._failure = ""
        self._retry_time = 0.0

    def describe(self) -> str:
        """Describe for a person in which mode sandboxes start, and why not in another."""
        if self._mode == "exec" or not self._failure:
            return "exec" if self._mode == "exec" else "fork"
        return f"exec, because fork does not work: {self._failure}"

    async def start(self, plan: Plan_contra) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`."""
        if self._mode == "exec" or self._zygote.needs_exec(plan) or not self._may_spawn():
            return await self._exec.start(plan)
        try:
            lifetime = await self._spawn(plan)
        except SpawnFailed as error:
            self._fall_back(plan, error)
        else:
            self._failure = ""
            return lifetime
        await self._clear(plan)
        return await self._exec.start(plan)

    def _may_spawn(self) -> bool:
        return not self._failure or asyncio.get_running_loop().time() >= self._retry_time

    async def _spawn(self, plan: Plan_contra) -> int | None:
        try:
            return await self._zygote.start(plan)
        except ZygoteGone:
            await self._clear(plan)
            return await self._zygote.start(plan)

    def _fall_back(self, plan: Plan_contra, error: SpawnFailed) -> None:
        if self._mode == "fork":
            message = f"{plan.folder.sandbox_id} could not be spawned by a zygote: {error}"
            raise SandboxStartFailed(message, {"detail": str(error)}) from None
        log.warning(
            "a sandbox could not be spawned by a zygote; it is started by a separate program", reason=str(error)
        )
        self._failure = str(error)
        self._retry_time = asyncio.get_running_loop().time() + RETRY_SECONDS

    async def prewarm(self, recipe: Recipe) -> None:
        """Prepare such sandboxes ahead, unless the mode is exec."""
        if self._mode != "exec":
            try:
                await self._zygote.prewarm(recipe)
            except SpawnFailed as error:
                log.warning("no zygote could be started ahead; the next create retries", reason=str(error))

    async def close(self) -> None:
        """Release the zygotes; sandboxes live on."""
        await self._zygote.close()

    async def _clear(self, plan: Plan_contra) -> None:
        await self._zygote.release(plan.folder)
        await asyncio.to_thread(discard, plan.folder)
