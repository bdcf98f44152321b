"""Pauses sandboxes whose time is over, where their makers asked for that in place of an end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

import structlog

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.e2b.guests import Guests
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import Marks, read_marks

POLL_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 60.0
_MOST_PAUSING: Final = 64
_BOOT: Final = "id=$(cat /proc/sys/kernel/random/uuid) && echo $id > /proc/sys/kernel/random/boot_id"
"""Where a sandbox has its own boot_id, it has another from then on: programs tell starts apart by it."""

log = structlog.get_logger()


class Pauser:
    """Pauses what is due; all that it knows is in the mesh's records, so that a new door goes on where one ended."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._made = asyncio.Event()
        self._pausing: dict[str, asyncio.Task[None]] = {}

    def note(self) -> None:
        """Note that such a sandbox was made."""
        self._made.set()

    async def run(self) -> None:
        """Pause what is due until cancelled; without such sandboxes this waits for the next."""
        while True:
            self._made.clear()
            try:
                following = await self._pause_due()
            except SandmeshError as error:
                log.warning("it is not known which sandboxes are to be paused", error=error.message)
                following = True
            except Exception:
                log.exception("looking for sandboxes to pause failed unexpectedly")
                following = True
            if not following:
                await self._made.wait()
            await asyncio.sleep(POLL_SECONDS)

    async def _pause_due(self) -> bool:
        """Pause what is due; return whether others will be."""
        infos = await self._guests.all()
        pausing = [(info, marks) for info in infos if (marks := read_marks(info.labels)) and marks.auto_pause]
        for info, marks in pausing:
            if info.state == "READY" and _is_due(info, marks):
                self._begin(info)
        return bool(pausing)

    def _begin(self, info: SandboxInfo) -> None:
        """Pause a sandbox beside the others: one that does not answer holds none of them up."""
        if info.sandbox_id in self._pausing or len(self._pausing) >= _MOST_PAUSING:
            return
        task = self._pausing[info.sandbox_id] = asyncio.create_task(self._pause(info), name="sandmesh-e2b-pause")
        task.add_done_callback(lambda _: self._pausing.pop(info.sandbox_id, None))

    async def close(self) -> None:
        """Pause nothing more."""
        tasks = list(self._pausing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pause(self, info: SandboxInfo) -> None:
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                guest = await self._guests.guest(public_id(info.sandbox_id))
                if not guest.marks.memory:
                    await end_processes(guest.box)
                await guest.box.pause()
        except Exception as error:
            log.warning("a sandbox could not be paused", sandbox_id=info.sandbox_id, error=str(error))


async def end_processes(box: SandboxAsync) -> None:
    """End all that user code runs: a sandbox that is paused then keeps only its files."""
    # All but what starts user code's processes, which no signal of theirs reaches.
    async with await box.processes.start(["/bin/sh", "-c", f"kill -9 -1; {_BOOT}"]) as process:
        await process.wait()


def _is_due(info: SandboxInfo, marks: Marks) -> bool:
    return info.lease is not None and marks.ends(info.lease.expires) <= datetime.now(UTC)
