"""Where a mesh keeps its things.

State survives the mesh, in `meshes/<mesh_id>`; what is built once for all meshes of a user is in `cache`; sockets are
in a short directory, because a unix socket's path holds 107 bytes at most.
As root, a sandbox's processes run under an unprivileged uid that must reach its own folder and socket: the directories
above can then be passed through (0711) but not listed, and the services' sockets are in a 0700 one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmesh.shared.paths import default_runtime_directory, default_state_directory, gateway_socket, mesh_runtime
from sandmeshd.runtime.full_disk import is_full

__all__ = ["LOCAL_NODE", "MeshPaths", "default_runtime_directory", "default_state_directory", "make_private"]

LOCAL_NODE = "local"
"""The node that a driver is that was told no other."""

_GET_FLAGS, _SET_FLAGS, _TOP = 0x80086601, 0x40086602, 0x20000
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL, see ioctl_iflags(2)."""


@dataclass(frozen=True)
class MeshPaths:
    """The directories of one mesh, as one of its nodes sees them: what sandboxes have is each node's own."""

    mesh_id: str
    state_root: Path
    runtime_root: Path
    node: str = LOCAL_NODE
    workspaces_root: Path | None = None

    @property
    def cache(self) -> Path:
        """What is built once for all meshes: templates' environments, the agent's own."""
        return self.state_root / "cache"

    @property
    def training_data(self) -> Path:
        """What the administrator gave training environments, for all meshes."""
        return self.state_root / "training-data"

    @property
    def state(self) -> Path:
        """What this mesh keeps."""
        return self.state_root / "meshes" / self.mesh_id

    @property
    def runtime(self) -> Path:
        """This mesh's sockets."""
        return mesh_runtime(self.runtime_root, self.mesh_id)

    @property
    def lock(self) -> Path:
        """The file that the mesh's process holds locked."""
        return self.state / "lock"

    @property
    def log(self) -> Path:
        """What the mesh logs where it runs in the background."""
        return self.state / "mesh.log"

    @property
    def secret(self) -> Path:
        """What proves services on this machine to each other, where they are told nothing else."""
        return self.state / "secret"

    @property
    def store(self) -> Path:
        """The embedded store's data."""
        return self.state / "store"

    @property
    def sandboxes(self) -> Path:
        """One folder a sandbox, with its workspace, for drivers that keep files."""
        return self.node_state / "sandboxes" if self.workspaces is None else self.workspaces / self.node

    @property
    def workspaces(self) -> Path | None:
        """Where the folders of this mesh's sandboxes are, where they are not with the state."""
        return None if self.workspaces_root is None else self.workspaces_root / self.mesh_id

    @property
    def node_state(self) -> Path:
        """What the node's drivers keep."""
        return self.state if self.node == LOCAL_NODE else self.state / "nodes" / self.node

    def of_node(self, node: str) -> MeshPaths:
        """Return the same mesh's directories as another node sees them."""
        return replace(self, node=node)

    def of_all_nodes(self) -> list[MeshPaths]:
        """Return those of every node that has kept anything here."""
        named = sorted(path.name for path in (self.state / "nodes").glob("*"))
        return [self.of_node(node) for node in (LOCAL_NODE, *named)]

    @property
    def services(self) -> Path:
        """The services' sockets."""
        return self.runtime / "s"

    @property
    def listeners(self) -> Path:
        """The notes of where the services listen."""
        return self.services / "l"

    @property
    def gateway(self) -> Path:
        """The gateway's socket, where programs of this user find the mesh."""
        return gateway_socket(self.runtime_root, self.mesh_id)

    @property
    def agents(self) -> Path:
        """One folder a sandbox, with its agent's socket."""
        short = "" if self.node == LOCAL_NODE else hashlib.sha256(self.node.encode()).hexdigest()[:6]
        return self.runtime / f"a{short}"

    def make(self) -> None:
        """Make the directories.

        Raises:
            RuntimeUnavailable: One cannot be made, or is another user's or open to others.
            OSError: The disk is full.
        """
        try:
            self._make()
        except OSError as error:
            if is_full(error):
                raise
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> RuntimeUnavailable:
        path = Path(error.filename or self.state_root)
        setting = "SANDMESH_WORKSPACES_DIRECTORY"
        if path.is_relative_to(self.state_root) or self.state_root.is_relative_to(path):
            setting = "SANDMESH_STATE_DIRECTORY"
        elif path.is_relative_to(self.runtime_root) or self.runtime_root.is_relative_to(path):
            setting = "SANDMESH_RUNTIME_DIRECTORY"
        fix = f"choose another one by {setting}"
        return RuntimeUnavailable(f"the directory {path} cannot be made: {error.strerror}: {fix}", {"fix": fix})

    def _make(self) -> None:
        passable = 0o711 if os.geteuid() == 0 else 0o700
        for path in (self.state_root, self.cache, self.state_root / "meshes", self.state):
            make_private(path, passable)
        if self.node_state != self.state:
            make_private(self.node_state.parent, passable)
            make_private(self.node_state, passable)
        if self.workspaces_root is not None and self.workspaces is not None:
            _make_passable(self.workspaces_root, passable)
            make_private(self.workspaces, passable)
        for path in (self.runtime_root, self.runtime):
            make_private(path, passable)
        # Sandboxes pass these two under their own uids, which for an ordinary user's no other user reaches.
        for path in (self.sandboxes, self.agents):
            make_private(path, 0o711)
        spread(self.sandboxes)
        make_private(self.store, 0o700)
        make_private(self.services, 0o700)


def make_private(path: Path, mode: int) -> None:
    """Make a directory of this user's with a mode, or check the one that is there.

    Raises:
        RuntimeUnavailable: It is another user's or open to others, or it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            fix = f"remove {path}, or choose another directory"
            raise RuntimeUnavailable(f"{path} is not a directory of only this user: {fix}", {"fix": fix}) from None
    path.chmod(mode)


def spread(path: Path) -> None:
    """Set ext4's top-directory flag, so that new directories in `path` are spread over the disk's block groups.

    By default all are near `path`. Without a journal ext4 passes over each inode there that was freed within the last
    minutes, so files beside a large tree that was just removed took ten times as long to make.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Other file systems have no such flag.
        with suppress(OSError):
            (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, bytes(struct.calcsize("l"))))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _TOP))
    finally:
        os.close(fd)


def _make_passable(path: Path, mode: int) -> None:
    """Make a directory that may be anybody's where it is there; as root, one that sandboxes' own uid can reach."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode)
        path.chmod(mode)
    closed = [folder for folder in (path, *path.resolve().parents) if not folder.stat().st_mode & 0o001]
    if closed and mode & 0o001:
        fix = f"chmod o+x {closed[-1]}, or choose another directory"
        raise RuntimeUnavailable(f"sandboxes' uid cannot reach {path}: {fix}", {"fix": fix})
