"""What this machine keeps of an agent's work: how its copy began, and what it has changed since."""

from __future__ import annotations

import fcntl
import filecmp
import gzip
import json
import os
import re
import shutil
import tarfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sandmesh.errors import InvalidArgument, NotFound, WrongState
from sandmesh.shared.files.ignore_patterns import IgnorePatterns
from sandmesh.shared.paths import default_state_directory
from sandmeshd.cli.coding_agents.changes import FileEdit, compare
from sandmeshd.cli.coding_agents.work_tree import TreeEntry, scan

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")
_RECORD: Final = "record.json"
_BEFORE: Final = re.compile(r"before(?:-(\d+))?\.tar\.gz")


@dataclass(frozen=True)
class AgentWork:
    """An agent's work on a folder, by name."""

    name: str
    agent: str
    directory: str
    patterns: tuple[str, ...] = ()
    """What the copy left out."""
    base: dict[str, TreeEntry] = field(default_factory=dict[str, TreeEntry])
    """The folder's entries as the agent found them, or as they were applied last."""
    sandbox_id: str = ""
    mounted: bool = False

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return works_folder() / self.name

    @property
    def result(self) -> Path:
        """The agent's copy as it was at the end of the last run."""
        return self.folder / "result"

    def changes(self) -> list[FileEdit]:
        """Return what the agent changed that was not applied."""
        return compare(self.base, scan(self.result, self.patterns)) if self.result.is_dir() else []

    def save(self, **values: Any) -> AgentWork:
        """Write the record with other values of its fields; return it."""
        changed = replace(self, **values)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.folder / f".{_RECORD}.new"
        fresh.write_text(json.dumps(asdict(changed)))
        fresh.replace(self.folder / _RECORD)
        return changed

    def keep_tree(self, root: Path, exclude: Sequence[str] = ()) -> Path:
        """Keep a copy of a folder that the agent is to change in place, with what git ignores; return the archive.

        Those of earlier runs are kept, too; where nothing changed since the last, that one is returned.
        """
        patterns, fresh = IgnorePatterns(exclude), self.folder / ".before.new"

        def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            path = member.name.removeprefix("./")
            return None if path != "." and patterns.leave_out(path, is_directory=member.isdir()) else member

        # Without the time in its head, so that equal folders have equal archives.
        with (
            fresh.open("wb") as file,
            gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            tar.add(root, ".", filter=chosen)
        numbers = [int(found[1] or 1) for path in self.folder.iterdir() if (found := _BEFORE.fullmatch(path.name))]
        last = max(numbers, default=0)
        if last and filecmp.cmp(self._before(last), fresh, shallow=False):
            fresh.unlink()
            return self._before(last)
        return fresh.replace(self._before(last + 1))

    def _before(self, number: int) -> Path:
        return self.folder / ("before.tar.gz" if number == 1 else f"before-{number}.tar.gz")

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other commands from this work until the block ends.

        Raises:
            WrongState: Another command has it.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fix = "wait for it to end, or choose another --name"
        with _lock(self.folder / "lock", f"another command is at the work {self.name!r}: {fix}", fix):
            yield


@contextmanager
def directory_locked(directory: str) -> Generator[None]:
    """Keep other agents from a folder that one changes in place.

    Raises:
        WrongState: Another agent changes it.
    """
    fix = "leave out --mount: each agent then has a copy"
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _flock(descriptor, f"another agent changes {directory} in place: {fix}", fix):
        yield


@contextmanager
def _lock(path: Path, message: str, fix: str) -> Generator[None]:
    with _flock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), message, fix):
        yield


@contextmanager
def _flock(descriptor: int, message: str, fix: str) -> Generator[None]:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongState(message, {"fix": fix, "state": "in use"}) from None
        yield
    finally:
        os.close(descriptor)


def works_folder() -> Path:
    """Return where the works of this user are kept."""
    state = os.environ.get("SANDMESH_STATE_DIRECTORY")
    return (Path(state) if state else default_state_directory()) / "agents"


def find_work(name: str) -> AgentWork | None:
    """Return the work of a name, None where there is none.

    Raises:
        InvalidArgument: Nothing can have that name, or its record cannot be read.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"invalid name {name!r}: use letters, digits, '.', '_' and '-', at most 63")
    path = works_folder() / name / _RECORD
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        base = {str(key): TreeEntry(**entry) for key, entry in values.pop("base").items()}
        return AgentWork(base=base, patterns=tuple(values.pop("patterns")), **values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = f"remove it with `sandmesh agent rm {name}`"
        raise InvalidArgument(f"{path} cannot be read ({error}): {fix}", {"fix": fix}) from None


def get_work(name: str) -> AgentWork:
    """Return the work of a name.

    Raises:
        NotFound: There is none.
    """
    found = find_work(name)
    if found is None:
        known = ", ".join(list_names()) or "none"
        raise NotFound(f"no work of an agent is named {name!r}; there are: {known}", {"known": known})
    return found


def list_names() -> Sequence[str]:
    """Return the names of this user's works."""
    return sorted(path.parent.name for path in works_folder().glob(f"*/{_RECORD}"))


def remove_work(name: str) -> None:
    """Remove what is kept of a work."""
    shutil.rmtree(works_folder() / name, ignore_errors=True)
