"""The sandboxes that clients are using: the door's attachment to each, and what it follows in it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandboxLost, SandboxNotFound, SandmeshError, WrongState
from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.envd.paths import HOME, WORKSPACE
from sandmeshd.facades.e2b.errors import SandboxGone
from sandmeshd.facades.e2b.identities import mesh_id, public_id
from sandmeshd.facades.e2b.marks import LABEL, Marks, read_marks
from sandmeshd.runtime.http import ExposedUrl
from sandmeshd.tenants.shares import owner_of_user

if TYPE_CHECKING:
    from sandmeshd.facades.e2b.envd.followed import Running
    from sandmeshd.facades.e2b.envd.watchers import ChangeCollector, DirectoryChanges

log = structlog.get_logger()

MOST: Final = 2_000
_LINKED: Final = frozenset({"bubblewrap"})
"""Drivers in whose sandboxes /home/user always leads to the workspace; elsewhere that is up to the image."""

USER: Final = "user"
"""The default user."""

PAUSED: Final = "PAUSED"
WOKEN_SECONDS: Final = 300
"""How long a sandbox runs that was woken by a request."""

LISTING_SECONDS: Final = 0.25
ENDED: Final = frozenset({"STOPPING", "GONE", "FAILED", "LOST"})


@dataclass
class Guest:
    """A sandbox that a client uses."""

    box: SandboxAsync
    marks: Marks
    sandbox_id: str
    home: str
    """Where programs inside find what clients know as /home/user."""

    rooted: bool = False
    """Whether it has root inside, so that what is asked for can be done as anybody."""

    owner: str = ""
    """Whom the bytes of its requests count for."""

    processes: dict[int, Running] = field(default_factory=dict[int, "Running"])
    """What was started in it, by process id; the last that ended too."""

    watchers: dict[str, ChangeCollector] = field(default_factory=dict[str, "ChangeCollector"])
    watched: set[DirectoryChanges] = field(default_factory=set["DirectoryChanges"])
    """What is watched in it: by those watchers and by streams."""

    contexts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Languages and directories of contexts, by kernel."""

    script: bool | None = None
    """Whether it has the context of JavaScript, which starts with its first code; None before somebody looked."""

    executions: dict[str, int] = field(default_factory=dict[str, int])
    """How many cells each kernel has run."""

    mcp_token: str = ""
    """The token of its MCP gateway, once it is known."""

    ports: dict[int, tuple[ExposedUrl, float]] = field(default_factory=dict[int, tuple[ExposedUrl, float]])
    """Ports that are exposed, and when each ends."""

    @property
    def public_id(self) -> str:
        """Its id as clients know it."""
        return public_id(self.sandbox_id)

    def user(self, named: str) -> str:
        """Return the user that something is done as, by the name in a request, which may be empty."""
        return (named or self.marks.user or USER) if self.rooted else USER

    def command_as(self, named: str, command: list[str]) -> list[str]:
        """Return what starts a command as somebody; the mesh itself starts it as root where there is root inside."""
        user = self.user(named)
        if not self.rooted or user == "root":
            return command
        return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *command]

    async def close(self) -> None:
        """Follow nothing of it any more; it stays as it is."""
        for process in self.processes.values():
            await process.close()
        for watcher in self.watchers.values():
            await watcher.close()
        await self.box.close()


class Guests:
    """The sandboxes that clients are using, by id; those not used for longest are forgotten first."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._reported: set[str] = set()
        self._guests: OrderedDict[str, Guest] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listing = asyncio.Lock()
        self._listed: list[SandboxInfo] = []
        self._listed_at = float("-inf")

    async def guest(self, name: str) -> Guest:
        """Return the sandbox of a public id.

        Raises:
            SandboxGone: There is none, or it was not made through this door.
        """
        sandbox_id = mesh_id(name)
        if sandbox_id is None:
            raise SandboxGone(name)
        found = self._guests.get(sandbox_id)
        if found is None:
            lock = self._locks.setdefault(sandbox_id, asyncio.Lock())
            async with lock:
                found = self._guests.get(sandbox_id) or await self._open(sandbox_id)
        self._guests.move_to_end(sandbox_id)
        return found

    async def check(self, name: str) -> SandboxInfo:
        """Return the record of a sandbox that is there.

        Raises:
            SandboxGone: There is none any more.
        """
        sandbox_id = mesh_id(name) or ""
        try:
            async with self._clients.client(None) as mesh:
                info = await mesh.sandboxes.get(sandbox_id)
        except (NotFound, ValueError):
            raise await self._gone(sandbox_id, name) from None
        if info.state in ENDED or read_marks(info.labels) is None:
            raise await self._gone(sandbox_id, name)
        return info

    async def wake(self, guest: Guest) -> None:
        """Resume a paused sandbox for some minutes, if its creator wants requests to do so.

        Raises:
            SandboxGone: It is paused and waits for its owner, or has ended.
        """
        info = await self.check(guest.public_id)
        if info.state != PAUSED:
            return
        if not guest.marks.auto_resume:
            raise SandboxGone(guest.public_id)
        async with self._locks.setdefault(guest.sandbox_id, asyncio.Lock()):
            if (await self.check(guest.public_id)).state == PAUSED:
                # In this order: one whose time is over would be paused again.
                await guest.box.renew(guest.marks.lease(WOKEN_SECONDS))
                await guest.box.resume()

    async def forget(self, sandbox_id: str) -> None:
        """Close the handle of a sandbox that has ended."""
        guest = self._guests.pop(sandbox_id, None)
        if guest is not None:
            await guest.close()

    async def close(self) -> None:
        """Close all handles; the sandboxes stay."""
        for sandbox_id in list(self._guests):
            await self.forget(sandbox_id)

    async def all(self) -> list[SandboxInfo]:
        """Return the records of every sandbox of this door."""
        async with self._clients.client(None) as mesh:
            found = await mesh.sandboxes.list()
        used = [sandbox for sandbox in found if sandbox.in_use and LABEL in sandbox.labels]
        marked = [sandbox for sandbox in used if read_marks(sandbox.labels) is not None]
        for one in used if len(marked) < len(used) else []:
            if read_marks(one.labels) is None:
                self._report(one.sandbox_id)
        return marked

    def _report(self, sandbox_id: str) -> None:
        if sandbox_id not in self._reported and len(self._reported) < MOST:
            self._reported.add(sandbox_id)
            fix = f"sandmesh rm {sandbox_id}"
            log.warning("a sandbox is left out: its labels cannot be read", sandbox_id=sandbox_id, fix=fix)

    async def listed_since(self, moment: float) -> list[SandboxInfo]:
        """Return a listing made after a moment of the monotonic clock, at most four of them a second."""
        async with self._listing:
            if self._listed_at < moment:
                await asyncio.sleep(self._listed_at + LISTING_SECONDS - time.monotonic())
                self._listed_at = time.monotonic()
                self._listed = await self.all()
        return self._listed

    async def _gone(self, sandbox_id: str, name: str) -> SandboxGone:
        await self.forget(sandbox_id)
        return SandboxGone(name)

    async def _open(self, sandbox_id: str) -> Guest:
        info = await self.check(public_id(sandbox_id))
        marks = read_marks(info.labels)
        box = SandboxAsync(sandbox_id, base_url=self._clients.address, bearer_token=self._clients.own_token)
        try:
            await box.start()
        except (NotFound, SandboxLost):
            raise SandboxGone(public_id(sandbox_id)) from None
        if marks is None:
            raise SandboxGone(public_id(sandbox_id))
        home = await find_home(box, info)
        guest = Guest(box, marks, sandbox_id, home, has_root(info), owner_of_user(info.user_id))
        self._guests[sandbox_id] = guest
        await self._forget_some()
        return guest

    async def _forget_some(self) -> None:
        while len(self._guests) > MOST:
            oldest, guest = next(iter(self._guests.items()))
            if any(not process.ended for process in guest.processes.values()):
                self._guests.move_to_end(oldest)
                return
            await self.forget(oldest)


def has_root(info: SandboxInfo) -> bool:
    """Return whether a sandbox has root inside, in an image."""
    return info.enforced.get("root", "").startswith("root inside")


async def find_home(box: SandboxAsync, info: SandboxInfo) -> str:
    """Return where programs in a sandbox find what clients know as /home/user."""
    # One that is paused cannot be asked; the mesh's own images have the link.
    if info.driver in _LINKED or info.state == PAUSED:
        return HOME
    check = await box.processes.start(["/bin/sh", "-c", f"[ {HOME} -ef {WORKSPACE} ]"])
    return HOME if (await check.wait()).exit_code == 0 else WORKSPACE


def is_gone(error: SandmeshError) -> bool:
    """Return whether an error means that the sandbox has ended."""
    return isinstance(error, SandboxNotFound | SandboxLost)


def is_away(error: SandmeshError) -> bool:
    """Return whether an error means that the sandbox has ended, or is paused."""
    return is_gone(error) or (isinstance(error, WrongState) and error.facts.get("state") == PAUSED)
