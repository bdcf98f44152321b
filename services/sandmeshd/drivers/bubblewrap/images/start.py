"""The start of a sandbox whose root is an image."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmeshd.drivers.bubblewrap.arguments import SOCKETS
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, Groups
from sandmeshd.drivers.bubblewrap.exec_start import (
    Plan,
    ended_on_error,
    launch,
    memory_file,
    note_uid,
    open_cgroup_fds,
    open_events,
    open_files,
    wait_for_agent,
)
from sandmeshd.drivers.bubblewrap.images.environment import ImageEnvironments
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRange, IdRanges
from sandmeshd.drivers.bubblewrap.pipes import open_pipe
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.agent_config import AGENT, MCP, USER, WORKSPACE, encode_config
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.portable_python import PORTABLE
from sandmeshd.drivers.node.records import Folder

CHANGES: Final = f"{SOCKETS}/changes"
"""Where the agent, and no user code, sees what was changed of the image."""
ETC: Final = {"hosts": f"127.0.0.1 localhost {USER}\n::1 localhost\n", "hostname": f"{USER}\n", "resolv.conf": ""}
"""What images get below /etc where they lack it."""
_TEMPORARY: Final = (("/tmp", "1777"),)  # noqa: S108 - inside


@dataclass(frozen=True)
class ImageRoot:
    """The image of one sandbox, and whose it is."""

    layers: tuple[Path, ...]
    """Lowest first."""
    user: str
    """What the image's USER says."""
    root: bool | None
    """Whether user code is to be root; None: as `user` says."""
    working_directory: str
    hold: int
    """The lock that keeps the layers, which the sandbox's processes hold from its start on."""


@dataclass(frozen=True)
class _Pipes:
    """The descriptors of a start that are open in this process."""

    config: int
    ready: int
    status: int
    lock: int
    filter: int
    memory: int | None
    cgroup_fds: tuple[int, ...]
    lease: int

    def of_agent(self, hold: int) -> list[int]:
        """Return what PID 1 keeps: locks as long as it lives, and what it reads."""
        optional = [self.memory] if self.memory is not None else []
        return [self.config, self.lock, hold, *optional, *self.cgroup_fds, *([self.lease] if self.lease >= 0 else [])]

    def all(self, hold: int) -> tuple[int, ...]:
        """Return all of them."""
        return (self.ready, self.status, self.filter, *self.of_agent(hold))


class ImageStarter:
    """Starts the sandboxes of one driver that have images."""

    def __init__(
        self,
        settings: BubblewrapSettings,
        agent_filter: bytes,
        groups: Groups,
        ranges: IdRanges,
        environments: ImageEnvironments,
    ) -> None:
        self._settings = settings
        self._filter = agent_filter
        self._groups = groups
        self._ranges = ranges
        self._environments = environments

    async def start(self, plan: Plan, root: ImageRoot) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`."""
        target = await self._environments.prepared(plan.mounts.environment)
        binds = self._environments.binds(plan.mounts.environment, target)
        with closing(self._ranges.lease()) as ids, open_pipe() as config, open_pipe() as ready:
            _make_folder(plan.folder, ids)
            note_uid(plan.record, ids.first)
            plan.record.write(plan.folder)
            group = self._groups.make(plan.folder, plan.limits)
            config.fill(encode_config(plan.config))
            with ExitStack() as stack:
                lock, status, output = open_files(plan.folder, stack)
                seccomp = stack.enter_context(memory_file(self._filter))
                memory = stack.enter_context(open_events(group)) if group else None
                cgroup_fds = stack.enter_context(open_cgroup_fds(group))
                pipes = _Pipes(config.reader, ready.writer, status, lock, seccomp, memory, cgroup_fds, ids.lock)
                monitor = self._launch(plan, root, (pipes, ids, binds, output), group)
            async with ended_on_error(plan.folder, monitor):
                config.close_reader()
                ready.close_writer()
                await wait_for_agent(plan.folder, ready.reader, self._settings.start_timeout)
            return config.detach_writer() if self._settings.ends_with_driver else None

    def _launch(
        self,
        plan: Plan,
        root: ImageRoot,
        how: tuple[_Pipes, IdRange, list[tuple[str, str, bool]], int],
        group: Group | None,
    ) -> int:
        pipes, ids, binds, output = how
        text = json.dumps(_description(plan, root, pipes, ids, binds, self._scratch(plan)))
        command = [sys.executable, "-I", "-S", str(plan.mounts.agent), "--image-root", text]
        joined = group.join_command() if group else []
        return launch([*joined, *command], output, pipes.all(root.hold))

    def _scratch(self, plan: Plan) -> int:
        most = self._settings.scratch_bytes
        return min(plan.mounts.scratch_bytes or most, most)


def _make_folder(folder: Folder, ids: IdRange) -> None:
    """Make a sandbox's directories on the host, which its root owns; an ordinary user's it takes over itself.

    The directory of the socket stays that user's, and is open to all who can pass the mesh's own.
    """
    folder.root.mkdir()
    folder.root.chmod(0o711)
    is_root = os.geteuid() == 0
    for inner, mode in ((folder.workspace, 0o700), (folder.changes, 0o700), (folder.sockets, 0o777)):
        inner.mkdir(exist_ok=True)
        inner.chmod(0o700 if is_root else mode)
        if is_root:
            os.chown(inner, ids.first, ids.first)


def _description(
    plan: Plan, root: ImageRoot, pipes: _Pipes, ids: IdRange, binds: list[tuple[str, str, bool]], scratch: int
) -> dict[str, object]:
    """Return what `sandmeshd.agent.boot.image.root` takes."""
    mounts, folder = plan.mounts, plan.folder
    binds = [*binds, (str(mounts.agent), AGENT, False), (str(mounts.mcp), MCP, False)]
    binds += [(str(path), place, False) for path, place in mounts.data]
    binds.append((str(folder.sockets), SOCKETS, True))
    if not mounts.disk_bytes:
        binds.append((str(folder.workspace), WORKSPACE, True))
    return {
        "layers": [str(path) for path in root.layers],
        "images": [],
        "images_directory": "",
        "caches": [],
        "map_layers": os.geteuid() == 0,
        "maps": ids.maps(),
        "binds": binds,
        "memory": [*_TEMPORARY, *((path, "0755") for path in mounts.scratch)],
        "scratch": scratch,
        "disk": str(folder.changes),
        "disk_bytes": mounts.disk_bytes,
        "workspace": WORKSPACE,
        "changes": CHANGES,
        "working_directory": root.working_directory,
        "etc": ETC,
        "host_name": USER,
        "low_ports": True,
        "status": pipes.status,
        "ready": pipes.ready,
        "filter": pipes.filter,
        "kept": pipes.of_agent(root.hold),
        "argv": _agent_command(plan, root, pipes),
    }


def _agent_command(plan: Plan, root: ImageRoot, pipes: _Pipes) -> list[str]:
    entry = {
        "user": root.user,
        "root": root.root,
        "owned": [SOCKETS, WORKSPACE] if os.geteuid() == 0 else [WORKSPACE],
        "processes": plan.config.max_processes,
    }
    return [
        *(f"{PORTABLE}/bin/python{VERSION}", "-I", "-S", AGENT),
        *("--config-fd", str(pipes.config), "--ready-fd", str(pipes.ready)),
        *([] if pipes.memory is None else ["--memory-fd", str(pipes.memory)]),
        *(["--cgroup-fds", ",".join(map(str, pipes.cgroup_fds))] if pipes.cgroup_fds else []),
        *("--image", json.dumps(entry)),
    ]
