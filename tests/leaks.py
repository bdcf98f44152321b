"""Whether a run left the machine as it was: processes, mounts, cgroups, folders of meshes.

Processes of the run are known by a mark that survives exec, a cleared environment, namespaces and another uid: an
unusual soft limit of POSIX message queues, which nothing here uses. So a kernel that was forked in a sandbox is found
too, and what others do on the machine meanwhile is not counted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import re
import resource
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandmeshd.drivers.bubblewrap.identity import LEASES
from sandmeshd.runtime.paths import default_runtime_directory, default_state_directory

# Only a run that left something takes so long.
GRACE_SECONDS = 30.0
POLL_SECONDS = 0.1
CGROUPS_DEEP = 4
OURS = re.compile(r"sandmesh|bwrap|valkey")


def mark_process(*, fresh: bool = False) -> int:
    """Set the mark for this process and all that it will start; the same again where it is set, unless `fresh`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    mark = random.SystemRandom().randrange(300_000, 400_000)
    if 300_000 <= soft < 400_000 and not fresh:
        return soft
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (mark, hard))
    return mark


def marked_processes(mark: int) -> dict[int, str]:
    """Return the live processes with the mark, except this one: the command of each by pid."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError, ValueError):
                if _soft_limit(folder) == mark and _state(folder) not in "ZX":
                    found[int(folder.name)] = _command(folder)
    return found


def _soft_limit(folder: Path) -> int:
    # The limits of a process that is being reaped are empty.
    found = [line for line in (folder / "limits").read_text().splitlines() if line.startswith("Max msgqueue size")]
    return int(found[0].split()[3]) if found else 0


def _state(folder: Path) -> str:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def _command(folder: Path) -> str:
    arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return arguments or f"[{(folder / 'comm').read_text().strip()}]"


def wait_for_ends(pids: Iterator[int], seconds: float) -> None:
    """Wait until every process has ended or the time is up."""
    deadline = time.monotonic() + seconds
    for pid in pids:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                waiting = select.poll()
                waiting.register(descriptor, select.POLLIN)
                waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
            finally:
                os.close(descriptor)


@dataclass(frozen=True)
class Machine:
    """What a run could leave besides processes."""

    mounts: frozenset[str]
    cgroups: frozenset[str]
    folders: frozenset[str]

    def left_since(self, before: Machine) -> list[str]:
        """List what is here and was not before."""
        return [
            *(f"mount {name}" for name in sorted(self.mounts - before.mounts)),
            *(f"cgroup {name}" for name in sorted(self.cgroups - before.cgroups)),
            *(f"folder {name}" for name in sorted(self.folders - before.folders)),
        ]

    def also_in(self, later: Machine) -> Machine:
        """Return what both have."""
        return Machine(self.mounts & later.mounts, self.cgroups & later.cgroups, self.folders & later.folders)


def settled(look: Callable[[], Machine], before: Machine, seconds: float) -> Machine:
    """Return what persists: others on the machine create and remove such things meanwhile, and leaks stay for ever."""
    deadline = time.monotonic() + seconds
    found = look()
    while found.left_since(before) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        found = found.also_in(look())
    return found


def inspect(temporary: Path) -> Machine:
    """Look at the machine; `temporary` is the folder of the run's own temporary files."""
    return Machine(_mounts(temporary), _cgroups(), _folders())


def inspect_own(temporary: Path) -> Machine:
    """Look at what one of several processes of tests alone has: the rest is theirs together."""
    own = frozenset(point for point in _mounts(temporary) if Path(point).is_relative_to(temporary))
    return Machine(own, frozenset(), frozenset())


def _mounts(temporary: Path) -> frozenset[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return frozenset(point for point in points if OURS.search(point) or Path(point).is_relative_to(temporary))


def _cgroups() -> frozenset[str]:
    """Return the control groups of sandboxes but those in which other people's processes live."""
    mark = mark_process()
    return frozenset(str(path) for path in cgroups() if "sandmesh" in path.name and not has_others(path, mark))


def has_others(cgroup: Path, mark: int) -> bool:
    """Return whether a process without the mark lives in a control group or in one inside it."""
    for file in (cgroup / "cgroup.procs", *cgroup.glob("*/cgroup.procs")):
        with suppress(OSError, ValueError):
            if any(_soft_limit(Path("/proc") / pid) != mark for pid in file.read_text().split()):
                return True
    return False


def cgroups() -> Iterator[Path]:
    """Return the machine's control groups, four deep. Others remove theirs meanwhile, which would fail a glob."""
    root = Path("/sys/fs/cgroup")
    for at, inner, _ in os.walk(root):
        yield from (Path(at, name) for name in inner)
        if len(Path(at).relative_to(root).parts) == CGROUPS_DEEP - 1:
            inner.clear()


def _folders() -> frozenset[str]:
    """Return the folders of meshes that no process holds or has in its command line, and those for sockets."""
    meshes = {path: _sockets_of(path) for path in default_state_directory().glob("meshes/*")}
    is_named = _process_names()
    held = {
        path.name for path, name in meshes.items() if is_named(path.name) or is_named(name) or _is_held(path / "lock")
    }
    sockets = {_sockets_of(path) for path in meshes if path.name in held}
    runtime = [path for path in default_runtime_directory().glob("*") if path.name not in {*sockets, LEASES}]
    # Several runs share /tmp: a folder of a live build is in the arguments of what builds.
    temporary = [
        path
        for path in Path("/tmp").glob("sandmesh*")
        if path != default_runtime_directory() and not is_named(path.name)
    ]
    return frozenset(str(path) for path in (*runtime, *temporary, *(path for path in meshes if path.name not in held)))


def _sockets_of(mesh: Path) -> str:
    return hashlib.sha256(mesh.name.encode()).hexdigest()[:10]


def _process_names() -> Callable[[str], bool]:
    """Return a function that tells whether a name is in the arguments or the environment of a live process."""
    found: list[bytes] = []
    for file in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")):
        with suppress(OSError):
            found.append(file.read_bytes())
    words = b"\0".join(found)
    return lambda name: name.encode() in words


def _is_held(lock: Path) -> bool:
    with suppress(FileNotFoundError, PermissionError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
