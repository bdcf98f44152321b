"""Directories of the host that are sandboxes' workspaces: which may be, opened once and used as what was opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, WorkspaceDirRefused
from sandmeshd.runtime.paths import MeshPaths

_HOSTS: Final = ("/proc", "/sys", "/dev", "/run", "/etc", "/usr", "/boot", "/bin", "/sbin", "/lib", "/lib64")
_USED: Final = 0o7
_SETTING: Final = "SANDMESH_WORKSPACE_ROOTS"


@dataclass(frozen=True)
class Rules:
    """Which directories may be workspaces: what is below the roots, or without roots what this user owns, if `own`."""

    paths: MeshPaths
    roots: Sequence[str]
    own: bool
    uid: int
    """The uid of user code on the host; its gid is the same number."""
    sockets: Sequence[Path] = ()
    """Those of engines, which no workspace may hold."""

    @property
    def forbidden(self) -> list[Path]:
        """What never is one, nor holds one, nor is below one: the host's own and the mesh's."""
        paths = self.paths
        ours = [paths.state_root, paths.runtime_root, *([paths.workspaces] if paths.workspaces else [])]
        return [Path(os.path.realpath(one)) for one in (*map(Path, _HOSTS), *ours, *self.sockets)]

    def check_allowed(self, path: str, owner: int) -> None:
        """Check that a path, with no link in it, whose owner is a uid, may be a workspace.

        Raises:
            WorkspaceDirRefused: It may not.
        """
        roots = [os.path.realpath(root) for root in self.roots]
        if any(Path(path).is_relative_to(root) for root in roots) or (self.own and os.geteuid() in (0, owner)):
            return
        allowed = ", ".join(roots) or ("directories of this user" if self.own else "none")
        fix = f"set {_SETTING} to a JSON list of the directories that it may be in, and restart the mesh"
        raise refused(path, f"is not among those that may be (allowed: {allowed})", fix)


@dataclass(frozen=True)
class WorkspaceDir:
    """A directory that is to be a workspace."""

    path: str
    """Where the system says it is, through no link."""
    fd: int

    def check_same(self, place: str) -> None:
        """Check that what is at a path is this very directory.

        Raises:
            WorkspaceDirRefused: It was replaced meanwhile.
        """
        with _seen(self.path):
            there, here = Path(place).stat(), os.fstat(self.fd)
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise refused(self.path, "was replaced while the sandbox was made", "try again")


@contextmanager
def opened(spec: sandbox_pb2.SandboxSpec, rules: Rules) -> Generator[WorkspaceDir | None]:
    """Open the directory that a spec names as its workspace, for the time of a block; None where it names none.

    Raises:
        WorkspaceDirRefused: It may not be one; `facts["fix"]` says what to do.
        CapabilityMissing: A limit of its size is stated, which nothing here can enforce.
        InvalidArgument: The path is not absolute, or a snapshot is to go there.
    """
    if not spec.workspace_dir:
        yield None
        return
    _check_fits(spec)
    # Who asks for what no setting allows does not learn whether it is there.
    rules.check_allowed(os.path.realpath(spec.workspace_dir), os.geteuid())
    with _seen(spec.workspace_dir):
        fd = os.open(spec.workspace_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # All is checked on what was opened: swapping names afterwards changes nothing.
        found = WorkspaceDir(str(Path(f"/proc/self/fd/{fd}").readlink()), fd)
        _check(found, rules)
        yield found
    finally:
        os.close(fd)


def _check_fits(spec: sandbox_pb2.SandboxSpec) -> None:
    field = "spec.workspace_dir"
    if not spec.workspace_dir.startswith("/") or "\0" in spec.workspace_dir:
        raise InvalidArgument(f"{field} is an absolute path, not {spec.workspace_dir!r}", {"field": field})
    if spec.snapshot_id:
        raise InvalidArgument(f"{field} keeps what is in it: name no snapshot beside it", {"field": field})
    if spec.limits.disk_bytes:
        message = "the size of a directory of the host cannot be limited: drop the limit disk, or workspace_dir"
        raise CapabilityMissing(message, {"needs": "disk"})


@contextmanager
def _seen(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        why = (error.strerror or "cannot be opened").lower()
        raise refused(path, f"is not a directory that the mesh can open ({why})", "name one that is there") from None


def _check(found: WorkspaceDir, rules: Rules) -> None:
    path, seen = Path(found.path), os.fstat(found.fd)
    for one in rules.forbidden:
        if path.is_relative_to(one) or one.is_relative_to(path):
            raise refused(found.path, f"may never be one: it is, holds or is in {one}", "name another directory")
    rules.check_allowed(found.path, seen.st_uid)
    if not _may_use(found, seen, rules.uid):
        raise refused(
            found.path, f"cannot be read and written by uid {rules.uid}, as user code has it", _fix(found, rules)
        )


def _fix(found: WorkspaceDir, rules: Rules) -> str:
    owner = os.fstat(found.fd).st_uid
    entries = f"u:{rules.uid}:rwX,d:u:{rules.uid}:rwX,d:u:{owner}:rwX"
    return (
        f"setfacl -R -m {entries} {found.path} (both may use what is in it then), or chown -R {rules.uid} {found.path}"
    )


def _may_use(found: WorkspaceDir, seen: os.stat_result, uid: int) -> bool:
    if uid == os.geteuid():
        # Its own view also knows of groups, and of file systems that are mounted read-only.
        return os.access(f"/proc/self/fd/{found.fd}", os.R_OK | os.W_OK | os.X_OK)
    listed = _listed(found)
    if uid in listed:
        return listed[uid] & _USED == _USED
    shift = 6 if seen.st_uid == uid else 3 if seen.st_gid == uid else 0
    return stat.S_IMODE(seen.st_mode) >> shift & _USED == _USED


def _listed(found: WorkspaceDir) -> dict[int, int]:
    """Return the permissions of the users in the access control list: see acl(5) and linux/posix_acl_xattr.h."""
    try:
        data = os.getxattr(f"/proc/self/fd/{found.fd}", "system.posix_acl_access")
    except OSError:
        return {}
    users: dict[int, int] = {}
    mask = _USED
    for at in range(4, len(data) - 7, 8):
        tag, may = (int.from_bytes(data[at + part : at + part + 2], "little") for part in (0, 2))
        if tag == 0x02:
            users[int.from_bytes(data[at + 4 : at + 8], "little")] = may
        elif tag == 0x10:
            mask = may
    return {uid: may & mask for uid, may in users.items()}


def refused(path: str, why: str, fix: str) -> WorkspaceDirRefused:
    """Return the error for a directory that cannot be a workspace, with what to do."""
    return WorkspaceDirRefused(f"workspace_dir {path} {why}: {fix}", {"path": path, "fix": fix})
