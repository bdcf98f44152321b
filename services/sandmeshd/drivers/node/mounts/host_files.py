"""Files of the host that every sandbox is to see, read-only, as the mesh's settings say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from sandmesh.errors import InvalidArgument

_OURS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run"),
    *("/tmp", "/opt/env", "/opt/agent", "/opt/sandmesh", "/workspace", "/home"),  # noqa: S108 - names, not files
)
_NEVER = ("/proc", "/sys", "/dev", "/run")


def granted(mounts: Mapping[str, str], socket: Path | None = None) -> list[tuple[Path, str]]:
    """Return the mounts and their places, sorted by place, for paths inside by paths of the host.

    `socket` is the engine's, which no sandbox is ever shown.

    Raises:
        InvalidArgument: One is not there, or may not be where it is wanted.
    """
    pairs = sorted(mounts.items(), key=lambda pair: pair[1])
    return [(_checked(host, socket), _place(host, inside)) for host, inside in pairs]


def _checked(host: str, socket: Path | None) -> Path:
    path = Path(host)
    if not path.is_absolute() or not path.exists():
        raise refused(host, "is not there: give the absolute path of a file or directory of this machine")
    real = path.resolve()
    if real == Path("/") or any(real.is_relative_to(one) for one in _NEVER):
        raise refused(host, "is the host's own and may not be shown to sandboxes")
    if socket is not None and socket.is_relative_to(real):
        raise refused(host, f"holds the engine's socket, {socket}: who reaches that has the machine")
    return real


def _place(host: str, inside: str) -> str:
    place = PurePosixPath(inside)
    if not place.is_absolute() or ".." in place.parts or place == PurePosixPath("/"):
        raise refused(host, f"is wanted at {inside!r}, which is not an absolute path inside")
    taken = taken_by(place)
    if taken is not None:
        fix = "choose another place, like /mnt/data"
        raise refused(host, f"is wanted at {inside}, but {taken} is the sandbox's own: {fix}")
    return str(place)


def taken_by(place: PurePosixPath) -> str | None:
    """Return the directory of every sandbox that a place is in or above of; None where nothing is there."""
    return next(
        (folder for folder in _OURS if place.is_relative_to(folder) or PurePosixPath(folder).is_relative_to(place)),
        None,
    )


def refused(host: str, why: str) -> InvalidArgument:
    """Return the error for a path of the host that cannot be mounted."""
    return InvalidArgument(f"SANDMESH_READONLY_MOUNTS: {host} {why}", {"setting": "readonly_mounts"})
