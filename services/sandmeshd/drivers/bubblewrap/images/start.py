"""The start of a sandbox whose root is an image, by a separate program."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass

from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Group, Groups
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import (
    ImagePlan,
    describe_entry,
    describe_root,
    make_folder,
    note_python,
    scratch,
)
from sandmeshd.drivers.bubblewrap.pipes import open_pipe
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.starts.exec_start import (
    ended_on_error,
    launch,
    memory_file,
    note_uid,
    open_cgroup_fds,
    open_events,
    open_files,
    wait_for_agent,
)
from sandmeshd.drivers.node.agent_config import AGENT, encode_config
from sandmeshd.drivers.node.images.environment import ImageEnvironments
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.portable_python.contents import PORTABLE


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


class ImageExecStarter:
    """Starts the sandboxes of one driver that have images: see `StartMode`."""

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

    async def start(self, plan: ImagePlan) -> int | None:
        """Start a sandbox and return when its agent listens: see `StartMode`."""
        binds = await self._environments.binds(plan.mounts.environment)
        with closing(self._ranges.lease()) as ids, open_pipe() as config, open_pipe() as ready:
            make_folder(plan.folder, ids)
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
                root = describe_root(plan.folder, plan.image, plan.mounts, ids.maps(), binds)
                root |= scratch(plan.mounts, self._settings.scratch_bytes)
                monitor = _launch(plan, root, pipes, output, group)
            async with ended_on_error(plan.folder, monitor):
                config.close_reader()
                ready.close_writer()
                said = await wait_for_agent(plan.folder, ready.reader, self._settings.start_timeout)
                note_python(plan, said)
            return config.detach_writer() if self._settings.ends_with_driver else None


def _launch(plan: ImagePlan, root: dict[str, object], pipes: _Pipes, output: int, group: Group | None) -> int:
    hold = plan.image.hold
    own = {"status": pipes.status, "ready": pipes.ready, "filter": pipes.filter, "kept": pipes.of_agent(hold)}
    text = json.dumps({**root, **own, "argv": _agent_command(plan, pipes)})
    command = [sys.executable, "-I", "-S", str(plan.mounts.agent), "--image-root", text]
    return launch([*(group.join_command() if group else []), *command], output, pipes.all(hold))


def _agent_command(plan: ImagePlan, pipes: _Pipes) -> list[str]:
    return [
        *(f"{PORTABLE}/bin/python{VERSION}", "-I", "-S", AGENT),
        *("--config-fd", str(pipes.config), "--ready-fd", str(pipes.ready)),
        *([] if pipes.memory is None else ["--memory-fd", str(pipes.memory)]),
        *(["--cgroup-fds", ",".join(map(str, pipes.cgroup_fds))] if pipes.cgroup_fds else []),
        *("--image", json.dumps(describe_entry(plan.image, plan.config.max_processes))),
    ]
