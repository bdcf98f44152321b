"""A sandbox's folder: the driver's whole state.

`spec.json` says what was asked for and whether the agent listens, `lock` is held by the sandbox's PID 1, `status.json`
is bwrap's own account of its child, `log` what agent and bwrap wrote, `workspace` the sandbox's files and `home`
those of its user, where what it installs goes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import signal
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InvalidArgument, LeaseLost, SandboxNotFound
from sandmeshd.agentlink.connection import installing_token
from sandmeshd.agentlink.warm_links import WaitingLink
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import removal_steps, remove_tree

MOST_AWAITED: Final = 4_000
"""How many entries of a tree are removed before its delete is answered; the rest of a larger tree after it."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_OOM_KILL = re.compile(r"^oom_kill [1-9]", re.MULTILINE)
_OOM_COUNTS = ("memory.oom_control", "memory.events")
"""Where a control group counts processes ended for want of memory, in either version."""
GONE = ".gone-"
LOCK, SPEC = "lock", "spec.json"


@dataclass(frozen=True)
class Folder:
    """The places of one sandbox on the host."""

    sandbox_id: str
    root: Path
    sockets: Path

    @property
    def lock(self) -> Path:
        """The file that is locked while the sandbox lives."""
        return self.root / LOCK

    @property
    def spec(self) -> Path:
        """The sandbox as it was asked for."""
        return self.root / SPEC

    @property
    def status(self) -> Path:
        """What bwrap says of its child."""
        return self.root / "status.json"

    @property
    def log(self) -> Path:
        """What agent and bwrap wrote."""
        return self.root / "log"

    @property
    def groups(self) -> Path:
        """The control groups that were made for it, a path a line; not there where it has none."""
        return self.root / "groups"

    @property
    def workspace(self) -> Path:
        """The sandbox's own files."""
        return self.root / "workspace"

    @property
    def damage(self) -> Path:
        """Why the driver ended it, where something on the host took away what it needs."""
        return self.root / "damage"

    @property
    def changes(self) -> Path:
        """What a sandbox with an image has changed of it: overlayfs's upper and work directory."""
        return self.root / "changes"

    @property
    def home(self) -> Path:
        """The home of the sandbox's user, with the packages that it installs."""
        return self.root / "home"

    @property
    def endpoint(self) -> str:
        """Where the agent listens, as the host sees it."""
        return f"unix://{self.sockets / 'agent.sock'}"

    def is_there(self) -> bool:
        """Return whether anything of the sandbox is left."""
        return self.root.exists() or self.sockets.exists()

    def is_alive(self) -> bool:
        """Return whether any process of the sandbox's PID 1 holds the lock."""
        try:
            # Of a thousand sandboxes this is asked every minute: a Path would take longer than the question.
            descriptor = os.open(f"{self.root}/{LOCK}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def status_value(self, key: str) -> int | None:
        """Return a number of bwrap's status, None where it has not been written."""
        found = re.search(rf'"{key}": (\d+)', _read(self.status))
        return int(found[1]) if found else None

    def end_detail(self) -> str:
        """Describe how the sandbox ended."""
        if damage := _read(self.damage):
            return damage
        code = self.status_value("exit-code")
        if code is None:
            return "it was killed with its monitor, or the machine went down"
        if code == 128 + signal.SIGKILL and self._ran_out_of_memory():
            return "signal 9: it ran out of the memory that its agent may use"
        return f"signal {code - 128}" if code > 128 else f"exit code {code}"

    def group_paths(self) -> list[str]:
        """Return the paths of its control groups."""
        return _read(self.groups).splitlines()

    def _ran_out_of_memory(self) -> bool:
        counts = (Path(group) / "agent" / name for group in self.group_paths() for name in _OOM_COUNTS)
        return any(_OOM_KILL.search(_read(count)) for count in counts)

    def tail(self, size: int, after: int = 0) -> tuple[bytes, int]:
        """Return the end of the log after so many bytes of it, at most `size` bytes, and where that ends.

        One that is shorter than `after` was shortened meanwhile, and is read from its begin.
        """
        try:
            with self.log.open("rb") as log:
                whole = log.seek(0, os.SEEK_END)
                begin = log.seek(max(after if after <= whole else 0, whole - size))
                data = log.read(size)
        except FileNotFoundError:
            return b"", after
        return data, begin + len(data)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


class MeshFolders:
    """The folders of a mesh."""

    def __init__(self, paths: MeshPaths) -> None:
        self._sandboxes, self._agents = paths.sandboxes, paths.agents

    def folder(self, sandbox_id: str) -> Folder:
        """Return a sandbox's folder, whether it exists or not.

        Raises:
            InvalidArgument: The id is not made of 1 to 128 letters, digits, `_`, `.` and `-`.
        """
        if not _ID.fullmatch(sandbox_id):
            message = f"{sandbox_id!r} is not a sandbox id: 1 to 128 letters, digits, _, . and -, no sign first"
            raise InvalidArgument(message, {"field": "sandbox_id"})
        # A socket's path holds 107 bytes: the id itself may be too long.
        short = hashlib.sha256(sandbox_id.encode()).hexdigest()[:10]
        return Folder(sandbox_id, self._sandboxes / sandbox_id, self._agents / short)

    def all(self) -> list[Folder]:
        """Return the folders that exist, by id."""
        return [self.folder(sandbox_id) for sandbox_id in self.ids()]

    def ids(self) -> list[str]:
        """Return the ids of the sandboxes whose folders exist, in order."""
        try:
            names = os.listdir(self._sandboxes)  # noqa: PTH208 - of a thousand sandboxes, every minute
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(filter(_ID.fullmatch, names))

    def staged(self, name: str) -> Folder:
        """Return a folder that is in no list, and that the next start of the driver removes."""
        return Folder(name, self._sandboxes / f"{GONE}{name}", self._agents / f"{GONE}{name}")

    def all_staged(self) -> list[Folder]:
        """Return those folders that exist, and what is left of the removed ones."""
        roots = sorted(self._sandboxes.glob(f"{GONE}*"))
        return [self.staged(root.name.removeprefix(GONE)) for root in roots]

    def discarded(self) -> list[Path]:
        """Return the directories whose removal was begun and not finished."""
        return sorted(path for place in (self._sandboxes, self._agents) for path in place.glob(f"{GONE}*"))


@dataclass(frozen=True)
class SpecRecord:
    """What `spec.json` holds: the sandbox, STARTING until its agent listened once, and its fencing token.

    The sandbox is the base64 of its serialized RuntimeSandbox. Each line is a record, and the last whole one counts.
    """

    sandbox: pb.RuntimeSandbox
    fencing_token: int

    def write(self, folder: Folder) -> None:
        """Write it in place of what was there, in one step."""
        # Not in protobuf's own JSON, and added to the file rather than put in its place: a claim waits for this.
        values = {"sandbox": b64encode(self.sandbox.SerializeToString()).decode(), "fencing_token": self.fencing_token}
        # What was cut off before it, on a full disk, stays a separate line.
        line = memoryview(f"\n{json.dumps(values)}\n".encode())
        descriptor = os.open(folder.spec, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        finally:
            os.close(descriptor)


def read_record(folder: Folder) -> SpecRecord | None:
    """Return the record as it was last written, None where there is none that can be read."""
    try:
        with open(f"{folder.root}/{SPEC}", "rb") as records:  # noqa: PTH123 - as the lock
            lines = records.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((record for line in reversed(lines) if (record := _parsed(line))), None)


def _parsed(line: bytes) -> SpecRecord | None:
    try:
        values = json.loads(line)
        return SpecRecord(pb.RuntimeSandbox.FromString(b64decode(values["sandbox"])), int(values["fencing_token"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, DecodeError):
        return None


def observe(folder: Folder, mesh_id: str) -> pb.RuntimeSandbox | None:
    """Return a sandbox as it is now, None where nothing of it is left."""
    record = read_record(folder)
    if record is None:
        if not folder.root.is_dir():
            return None
        # Its creator was killed before it wrote what it was making.
        record = SpecRecord(pb.RuntimeSandbox(sandbox_id=folder.sandbox_id, mesh_id=mesh_id), 0)
    sandbox = record.sandbox
    if not folder.is_alive():
        sandbox.state = pb.RUNTIME_STATE_ENDED
        sandbox.end_detail = folder.end_detail()
    return sandbox


async def hand_over(folder: Folder, request: pb.InstallTokenRequest, waiting: WaitingLink) -> None:
    """Make a sandbox's agent refuse every lower fencing token, and have its record say who has it from then on.

    `waiting` may have a link to the agent already.

    Raises:
        SandboxNotFound: Nothing is known of it.
        SandboxLost: Its agent does not answer.
        LeaseLost: A higher token is in force.
    """
    kept = waiting.take(folder.sandbox_id)
    sandbox, link = (kept.sandbox, kept.link) if kept else (_leased_before(folder, request.fencing_token), None)
    async with installing_token(sandbox, request.fencing_token, link):
        # Written while the agent reads: where it refuses or is gone, the sandbox is given up.
        sandbox.record_labels.clear()
        sandbox.record_labels.update(request.record_labels)
        SpecRecord(sandbox, request.fencing_token).write(folder)


def _leased_before(folder: Folder, fencing_token: int) -> pb.RuntimeSandbox:
    record = read_record(folder)
    if record is None:
        raise SandboxNotFound(f"there is no sandbox {folder.sandbox_id}", {"sandbox_id": folder.sandbox_id})
    if fencing_token < record.fencing_token:
        raise LeaseLost(f"the fencing token {fencing_token} is older than the one in force")
    return record.sandbox


def begin_removal(folder: Folder) -> Iterator[None] | None:
    """Rename a sandbox's folder and remove a small tree; return the steps that are left of a larger one.

    The sandbox is gone with the first step; `finish_removals` does the rest after a kill.
    """
    remove_tree(folder.sockets)
    gone = folder.root.with_name(f"{GONE}{secrets.token_hex(8)}")
    try:
        folder.root.rename(gone)
    except FileNotFoundError:
        return None
    steps = removal_steps(gone)
    taken = sum(1 for _ in islice(steps, MOST_AWAITED))
    return steps if taken == MOST_AWAITED else None


def discard(folder: Folder) -> None:
    """Remove a sandbox's folders."""
    deque(begin_removal(folder) or (), maxlen=0)


def finish_removals(folders: MeshFolders) -> None:
    """Remove what a killed process had begun to remove."""
    for gone in folders.discarded():
        remove_tree(gone)
