"""What bwrap is told of the host's files that every sandbox is to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sandmeshd.drivers.node.host_files import granted, refused


def show_granted(mounts: Mapping[str, str], uid: int) -> Sequence[str]:
    """Give bwrap's arguments for them; `uid` is that of sandboxes' processes on the host.

    Raises:
        InvalidArgument: One is not there, or may not be where it is wanted, or that uid cannot reach it.
    """
    arguments: list[str] = []
    for real, inside in granted(mounts):
        if not all(_passes(parent, uid) for parent in real.parents):
            fix = "chmod o+x the ones above it"
            raise refused(str(real), f"is in a directory that sandboxes' uid {uid} may not pass: {fix}")
        arguments += ["--ro-bind", str(real), inside]
    return arguments


def _passes(path: Path, uid: int) -> bool:
    found = path.stat()
    bits = 0o100 if found.st_uid == uid else 0o010 if found.st_gid == uid else 0o001
    return bool(found.st_mode & bits)
