"""Patches of directory trees, which one sandbox makes and another one applies."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from sandmesh.shared.files.atomic_file import OPENED_DIRECTORY
from sandmeshd.agent.files.trees.patches import received
from sandmeshd.agent.files.trees.tree_states import scan
from tests.fuzz.mutation import TEXTS, mutated, text
from tests.fuzz.target import Fault, Feed, Target

_NAMES = (
    "file",
    "dir",
    "dir/inside",
    "link",
    "link/inside",
    "new",
    "new/deep",
    "../outside",
    ".sandmesh-0123456789abcdef",
)
_KINDS = ("file", "directory", "symlink")
_TARGETS = ("..", "../outside", "/etc/passwd", "dir")


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _make(random: Random) -> bytes:
    changes: list[list[Any]] = []
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(random.sample(_NAMES, random.randint(0, 5))):
            path = name if random.random() < 0.9 else text(random).replace("\0", "")
            before = (
                ["file", 0o644, 7, _digest(b"content")]
                if random.random() < (0.8 if path in ("file", "dir/inside") else 0.1)
                else None
            )
            changes.append([path, before, _add(random, archive, path) if random.random() < 0.8 else None])
    written = json.dumps(changes).encode()
    if random.random() < 0.3:
        written = mutated(random, written)
    data = len(written).to_bytes(8, "big") + written + buffer.getvalue()
    return (
        mutated(random, data, tuple(one.encode() for one in TEXTS if len(one) < 100)) if random.random() < 0.3 else data
    )


def _add(random: Random, archive: tarfile.TarFile, path: str) -> list[Any]:
    info, kind = tarfile.TarInfo(path), random.choice(_KINDS)
    info.mode = random.choice((0o644, 0o755, 0o500, 0))
    if kind == "directory":
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
        return [kind, info.mode, 0, ""]
    if kind == "symlink":
        info.type, info.linkname = tarfile.SYMTYPE, random.choice(_TARGETS)
        archive.addfile(info)
        return [kind, 0o777, len(info.linkname), _digest(info.linkname.encode())]
    data = random.randbytes(random.choice((0, 3, 600)))
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
    return [kind, info.mode, len(data), _digest(data)]


@asynccontextmanager
async def _open() -> AsyncGenerator[Feed]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        outside, root = Path(folder, "outside"), Path(folder, "root")
        outside.write_text("as it was")

        def feed(data: bytes) -> str:
            _fill(root)
            try:
                outcome = _apply(root, data)
            finally:
                _remove(root)
            left = [path.name for path in Path(folder).iterdir()]
            if outside.read_text() != "as it was" or left != ["outside"]:
                raise Fault(f"something is outside: {left}")
            return outcome

        yield feed


def _fill(root: Path) -> None:
    (root / "dir").mkdir(parents=True)
    (root / "file").write_text("content")
    (root / "dir/inside").write_text("content")
    (root / "link").symlink_to("..")


def _apply(root: Path, data: bytes) -> str:
    fd = os.open(root, OPENED_DIRECTORY)
    try:
        before = _facts(fd)
        try:
            with received(fd, io.BytesIO(data)) as patch:
                conflicts = patch.conflicts()
                if not conflicts or len(data) % 2:  # as with force
                    patch.apply()
            outcome = "conflicts" if conflicts else "ok" if patch.changes else "nothing"
        except OSError as error:
            outcome = f"errno {error.errno}"
            if _facts(fd) != before:
                raise Fault("a refused patch changed the tree") from error
        if list(root.glob(".sandmesh-*")):
            raise Fault("its staging directory stays")
        return outcome
    finally:
        os.close(fd)


def _facts(fd: int) -> dict[str, tuple[str, int, int, str]]:
    return {path: entry.facts for path, entry in scan(fd).items()}


def _remove(root: Path) -> None:
    for at, folders, _ in os.walk(root):
        for name in folders:
            path = Path(at, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(root)


TARGETS = (Target("patch", _make, _open),)
