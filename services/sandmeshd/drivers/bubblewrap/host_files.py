"""The files of the host that the settings mount into every sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sandmeshd.drivers.node.mounts.host_files import granted, refused


def bind_host_files(mounts: Mapping[str, str], uid: int) -> Sequence[str]:
    """Return bwrap's arguments for the mounts; `uid` is that of sandboxes' processes on the host.

    Raises:
        InvalidArgument: One does not exist, its target is not allowed, or that uid cannot reach it.
    """
    arguments: list[str] = []
    for real, inside in granted(mounts):
        if not all(_passes(parent, uid) for parent in real.parents):
            fix = "chmod o+x the ones above it"
            raise refused(str(real), f"is in a directory that sandboxes' uid {uid} cannot pass: {fix}")
        arguments += ["--ro-bind", str(real), inside]
    return arguments


def _passes(path: Path, uid: int) -> bool:
    status = path.stat()
    bits = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == uid else 0o001
    return bool(status.st_mode & bits)
