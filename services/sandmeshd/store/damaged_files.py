"""Damage to the files of the mesh's own store: its server reports it in other words, or starts as an empty store."""

from __future__ import annotations

import re
from pathlib import Path

FIX = (
    "restore the backup (docs/operate.md), or move the folder aside to begin with an empty store, which finds the "
    "sandboxes that run; valkey-check-aof --fix keeps what was written before the damage"
)

_NAMES = re.compile(r"^file (\S+) seq \d+ type [bi]", re.MULTILINE)
_BAD_FORMAT = re.compile(r"Bad file format reading the append only file (\S+?):")


def find_damage(directory: Path, log_tail: str = "") -> str:
    """Return which of a store's files are damaged, as they are or as its server's log says; "" for none."""
    folder = directory / "appendonlydir"
    manifests = list(folder.glob("*.manifest"))
    if not manifests:
        # Of a first start that was killed there may be a base without any record in it.
        written = [path.name for path in sorted(folder.glob("*.incr.aof")) if path.stat().st_size]
        return f"{folder} has {', '.join(written)} but not the manifest, which names the files" if written else ""
    try:
        names = [name for path in manifests for name in _NAMES.findall(path.read_text())]
    except (OSError, UnicodeDecodeError):
        return f"{manifests[0]} cannot be read"
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        return f"{folder} lacks {', '.join(missing)}"
    bad = _BAD_FORMAT.search(log_tail)
    return f"{folder / bad[1]} is damaged in the middle" if bad else ""
