"""Which way a sandbox is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from sandmesh.errors import SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import Mounts
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import remove_groups
from sandmeshd.drivers.bubblewrap.exec_start import Plan, Starter
from sandmeshd.drivers.bubblewrap.fork_start import ForkStarter, needs_exec
from sandmeshd.drivers.bubblewrap.settings import WayName
from sandmeshd.drivers.bubblewrap.zygotes import CannotFork, ZygoteGone
from sandmeshd.drivers.node.deletion import discard

AGAIN_SECONDS = 60.0
"""How long no fork is tried after one could not be made."""

log = structlog.get_logger()


class Ways:
    """Starts each sandbox the way that is wanted and works."""

    def __init__(self, wanted: WayName, execing: Starter, forking: ForkStarter) -> None:
        self._wanted = wanted
        self.groups = execing.groups
        """The control groups that sandboxes can be put into."""
        self._exec = execing
        self._fork = forking
        self._refused = ""
        self._again = 0.0

    def describe(self) -> str:
        """Say for a person which way sandboxes start, and why not another."""
        if self._wanted == "exec" or not self._refused:
            return "exec" if self._wanted == "exec" else "fork"
        return f"exec, because fork does not work: {self._refused}"

    async def start(self, plan: Plan) -> int | None:
        """Start a sandbox and return when its agent listens: see Way."""
        needed = needs_exec(plan)
        if self._wanted == "exec" or needed or not self._may_fork():
            return await self._exec.start(plan)
        try:
            held = await self._forked(plan)
        except CannotFork as error:
            self._refuse(plan, error)
        else:
            self._refused = ""
            return held
        await _clear(plan)
        return await self._exec.start(plan)

    def _may_fork(self) -> bool:
        return not self._refused or asyncio.get_running_loop().time() >= self._again

    async def _forked(self, plan: Plan) -> int | None:
        try:
            return await self._fork.start(plan)
        except ZygoteGone:
            await _clear(plan)
            return await self._fork.start(plan)

    def _refuse(self, plan: Plan, error: CannotFork) -> None:
        if self._wanted == "fork":
            message = f"{plan.folder.sandbox_id} could not be forked: {error}"
            raise SandboxStartFailed(message, {"detail": str(error)}) from None
        log.warning("a sandbox could not be forked; it gets a bwrap of its own", reason=str(error))
        self._refused = str(error)
        self._again = asyncio.get_running_loop().time() + AGAIN_SECONDS

    async def stand_by(self, mounts: Mounts, variables: Mapping[str, str]) -> None:
        """Have ready what forks such sandboxes, where they are forked."""
        if self._wanted != "exec":
            try:
                await self._fork.stand_by(mounts, variables)
            except CannotFork as error:
                log.warning("no zygote stands by; the next create tries again", reason=str(error))

    async def close(self) -> None:
        """Let go of what stands by; sandboxes live on."""
        await self._fork.close()


async def _clear(plan: Plan) -> None:
    await remove_groups(plan.folder)
    await asyncio.to_thread(discard, plan.folder)
