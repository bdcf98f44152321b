"""Volumes: directories of the node by owner and name, which several sandboxes can share and which outlive them."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, RuntimeUnavailable
from sandmeshd.drivers.api.volumes import NAME, OWNER
from sandmeshd.drivers.node.agent_config import WORKSPACE
from sandmeshd.drivers.node.mounts.host_directories import WorkspaceDir
from sandmeshd.drivers.node.mounts.host_files import taken_by

MOST: Final = 16
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Volume:
    """A volume of one sandbox: an open directory of the node, and where it is inside."""

    directory: WorkspaceDir
    place: str


def check_volumes(volumes: Mapping[str, str]) -> None:
    """Check names and places of volumes.

    Raises:
        InvalidArgument: One does not fit, or there are too many.
    """
    if len(volumes) > MOST:
        raise InvalidArgument(f"a sandbox has at most {MOST} volumes", {"field": "volumes"})
    for place, name in volumes.items():
        if NAME.fullmatch(name) is None:
            rule = "is 1 to 128 letters, digits, '.', '_' and '-'"
            raise InvalidArgument(f"the name of a volume {rule}, not {name!r}", {"field": "volumes"})
        _check_place(place)
    for place in volumes:
        above = next(
            (volume for volume in volumes if volume != place and PurePosixPath(place).is_relative_to(volume)), None
        )
        if above is not None:
            raise InvalidArgument(f"the volume at {place} would be in that at {above}", {"field": "volumes"})


def _check_place(place: str) -> None:
    path = PurePosixPath(place)
    if not path.is_absolute() or ".." in path.parts or "\0" in place or str(path) != place:
        raise InvalidArgument(f"a volume's place is an absolute path inside, not {place!r}", {"field": "volumes"})
    if path.is_relative_to(WORKSPACE) and place != WORKSPACE:
        return
    taken = taken_by(path)
    if taken is not None:
        fix = "choose another place, like /mnt/data"
        raise InvalidArgument(f"no volume can be at {place}, since {taken} is the sandbox's own: {fix}", {"fix": fix})


@contextmanager
def opened_volumes(spec: sandbox_pb2.SandboxSpec, root: Path | None, uid: int) -> Generator[tuple[Volume, ...]]:
    """Open the volumes that a spec names, and make those that are not there, for the time of a block.

    Only drivers write above a volume, so that no link can lead elsewhere. `uid` is user code's on the host.

    Raises:
        InvalidArgument: A name or place does not fit.
        CapabilityMissing: The node has no directory for them.
        RuntimeUnavailable: The directory of volumes cannot be written.
    """
    if not spec.volumes:
        yield ()
        return
    check_volumes(spec.volumes)
    if root is None:
        fix = "set SANDMESH_VOLUMES to a directory that all nodes share"
        raise CapabilityMissing(f"this node has no directory for volumes: {fix}", {"needs": "volumes", "fix": fix})
    if OWNER.fullmatch(spec.volumes_owner) is None:
        raise InvalidArgument("volumes belong to somebody, whom the mesh names", {"field": "volumes_owner"})
    with ExitStack() as stack:
        try:
            owner = root / spec.volumes_owner
            _make(root, 0o711)
            _make(owner, 0o711)
            above = stack.enter_context(_open(str(owner)))
            found = [
                Volume(_volume(stack, above, owner / name, uid), place) for place, name in sorted(spec.volumes.items())
            ]
        except OSError as error:
            fix = f"make {root} writable for this user, or set SANDMESH_VOLUMES"
            message = f"the volumes in {root} cannot be used ({error.strerror}): {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from None
        yield tuple(found)


def _make(path: Path, mode: int) -> None:
    with suppress(FileExistsError):
        path.mkdir(mode=mode, parents=True)
        path.chmod(mode)


def _volume(stack: ExitStack, above: int, path: Path, uid: int) -> WorkspaceDir:
    with suppress(FileExistsError):
        os.mkdir(path.name, 0o700, dir_fd=above)
        if os.geteuid() == 0:
            os.chown(path.name, uid, uid, dir_fd=above, follow_symlinks=False)
        elif os.geteuid() != uid:
            # An engine has user code under another uid; the directories above let no other user pass.
            path.chmod(0o777)
    return WorkspaceDir(str(path), stack.enter_context(_open(path.name, above)))


@contextmanager
def _open(path: str, above: int | None = None) -> Generator[int]:
    descriptor = os.open(path, _DIRECTORY, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
