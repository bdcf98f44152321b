"""What a zygote is asked for, to spawn a sandbox."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from sandmeshd.drivers.bubblewrap.arguments import FOLDERS_OF_ALL, SOCKETS, SOCKETS_OF_ALL, Mounts
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, GroupLimits
from sandmeshd.drivers.bubblewrap.identity import UidLease
from sandmeshd.drivers.bubblewrap.pipes import Pipe
from sandmeshd.drivers.bubblewrap.spawns.spawn import Spawn
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan, open_events, open_files
from sandmeshd.drivers.bubblewrap.starts.zygotes import RunningZygote, ZygoteKey
from sandmeshd.drivers.node.agent_config import HOME, WORKSPACE
from sandmeshd.drivers.node.records import Folder


@dataclass(frozen=True)
class SpawnKind:
    """What a sandbox has from its first moment on; all else is configured when it is known whose it is."""

    zygote: ZygoteKey
    limits: GroupLimits
    disk_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Recipe:
    """What a sandbox of a kind is spawned from."""

    mounts: Mounts
    variables: Mapping[str, str]
    limits: GroupLimits
    owner: str

    @staticmethod
    def of(plan: Plan) -> Recipe:
        """Return the recipe of a sandbox to be started."""
        return Recipe(plan.mounts, plan.variables, plan.limits, plan.owner)

    @property
    def zygote(self) -> ZygoteKey:
        """The key of the zygote that spawns it."""
        return ZygoteKey.of(self.mounts, self.variables, self.owner)

    @property
    def kind(self) -> SpawnKind:
        """The kind of sandbox that it makes."""
        return SpawnKind(self.zygote, self.limits, self.mounts.disk_bytes, self.mounts.scratch_bytes)

    def close(self) -> None:
        """Release what is kept for its sandboxes: nothing here."""


@dataclass(frozen=True)
class HostPlace:
    """What a sandbox has on the host: its folder, which exists, its control groups and its uid."""

    folder: Folder
    group: Group | None
    lease: UidLease


def request_spawn(
    place: HostPlace, body: dict[str, object], zygote: RunningZygote, held: tuple[int, ...] = ()
) -> Spawn:
    """Request a sandbox; the lock of its ids is duplicated, and so is what else it is to have `held`.

    Raises:
        ZygoteGone: The zygote does not accept requests.
    """
    folder, group, lease = place.folder, place.group, place.lease
    with ExitStack() as stack:
        lock, status, output = open_files(folder, stack)
        events = stack.enter_context(open_events(group)) if group else None
        with ExitStack() as own:
            config = Pipe.new()
            own.callback(config.close)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            own.enter_context(ours)
            with theirs:
                fds = [lock, status, output, config.reader, theirs.fileno(), *held]
                optional = [*([lease.lock] if lease.own else []), *([] if events is None else [events])]
                zygote.request(body, [*fds, *optional])
            config.close_reader()
            own.pop_all()
    return Spawn(folder, group, ours, config, lease.uid)


def sandbox_body(place: HostPlace, mounts: Mounts) -> dict[str, object]:
    """Return what differs between sandboxes: its uid, directories of the host, file systems in memory."""
    folder, lease = place.folder, place.lease
    size, own = mounts.disk_bytes, {"scratch": mounts.scratch_bytes, "uid": lease.own}
    sockets = (f"{SOCKETS_OF_ALL}/{folder.sockets.name}", SOCKETS)
    if size:
        return {**own, "binds": [sockets], "disk": (size, [WORKSPACE, HOME])}
    workspace, home = (f"{FOLDERS_OF_ALL}/{folder.root.name}/{one.name}" for one in (folder.workspace, folder.home))
    owned = [workspace, home] if lease.is_subordinate else []
    return {**own, "binds": [(workspace, WORKSPACE), (home, HOME), sockets], "owned": owned}
