"""Files of the host that every sandbox is to see, read-only, as the mesh's settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from sandmesh.errors import InvalidArgument

_OURS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run"),
    *("/tmp", "/opt/env", "/opt/agent", "/workspace", "/home"),  # noqa: S108 - names, not files
)
_NEVER = ("/proc", "/sys", "/dev", "/run")


def show_granted(mounts: Mapping[str, str], uid: int) -> Sequence[str]:
    """Give bwrap's arguments for them; `uid` is that of sandboxes' processes on the host.

    Raises:
        InvalidArgument: One is not there, or may not be where it is wanted.
    """
    arguments: list[str] = []
    for host, inside in sorted(mounts.items(), key=lambda pair: pair[1]):
        arguments += ["--ro-bind", str(_checked(host, uid)), _place(host, inside)]
    return arguments


def _checked(host: str, uid: int) -> Path:
    path = Path(host)
    if not path.is_absolute() or not path.exists():
        raise _refused(host, "is not there: give the absolute path of a file or directory of this machine")
    real = path.resolve()
    if real == Path("/") or any(real.is_relative_to(one) for one in _NEVER):
        raise _refused(host, "is the host's own and may not be shown to sandboxes")
    if not all(_passes(parent, uid) for parent in real.parents):
        raise _refused(host, f"is in a directory that sandboxes' uid {uid} may not pass: chmod o+x the ones above it")
    return real


def _passes(path: Path, uid: int) -> bool:
    found = path.stat()
    bits = 0o100 if found.st_uid == uid else 0o010 if found.st_gid == uid else 0o001
    return bool(found.st_mode & bits)


def _place(host: str, inside: str) -> str:
    place = PurePosixPath(inside)
    if not place.is_absolute() or ".." in place.parts or place == PurePosixPath("/"):
        raise _refused(host, f"is wanted at {inside!r}, which is no absolute path inside")
    taken = next((one for one in _OURS if place.is_relative_to(one) or PurePosixPath(one).is_relative_to(place)), None)
    if taken is not None:
        fix = "choose another place, like /mnt/data"
        raise _refused(host, f"is wanted at {inside}, but {taken} is the sandbox's own: {fix}")
    return str(place)


def _refused(host: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"SANDMESH_READONLY_MOUNTS: {host} {why}", {"setting": "readonly_mounts"})
