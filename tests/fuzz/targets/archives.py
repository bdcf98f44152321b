"""Tar streams, which sandboxes pack and unpack, and snapshots that are read back."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from google.protobuf import json_format

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import SnapshotDamaged
from sandmesh.shared.files import tar
from sandmesh.shared.files.atomic_directory import fill_atomically
from tests.fuzz.messages import Filler
from tests.fuzz.mutation import TEXTS, mutated, number, text
from tests.fuzz.target import Fault, Feed, Target

from .wire import inside, simple

_archive = inside("sandmeshd.drivers.snapshots.archive")
_PAX = ("path", "size", "linkpath", "mtime", "GNU.sparse.map", "SCHILY.x")
_NAMES = (
    "a",
    "a/b",
    "a/b/c",
    "dir",
    "dir/x",
    "link",
    "link/x",
    "../out",
    "/out",
    "a/../../out",
    ".",
    "./a",
    "n" * 300,
    "",
)
_LINKS = ("a", "..", "../..", "../../../../tmp", "/etc/passwd", "dir", "link", ".", "a/../..", "", "x" * 4096)
_WORDS = tuple(one.encode() for one in TEXTS if len(one) < 100)
_KINDS = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, b"9")


def _make_tar(random: Random) -> bytes:
    made = bytearray()
    for _ in range(random.randint(1, 6)):
        name = random.choice(_NAMES) if random.random() < 0.8 else text(random)
        info = tarfile.TarInfo(name)
        info.type = random.choice((tarfile.REGTYPE, *_KINDS))
        info.linkname = random.choice(_LINKS)
        info.mode = random.choice((0o644, 0o755, 0, 0o7777, 0o40000))
        content = random.randbytes(random.choice((0, 1, 512, 3000))) if info.type == tarfile.REGTYPE else b""
        info.size = len(content)
        if random.random() < 0.2:
            info.pax_headers = {random.choice(_PAX): text(random)}
        if random.random() < 0.1:
            info.mtime = random.choice((0, -1, 2**33, 1.5))
        as_pax = random.random() < 0.5
        try:
            made += info.tobuf(tarfile.PAX_FORMAT if as_pax else tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        except ValueError:
            continue
        made += content + bytes(-len(content) % 512)
    data = bytes(made) + bytes(1024)
    return (
        mutated(random, data, tuple(one.encode() for one in TEXTS if len(one) < 100)) if random.random() < 0.6 else data
    )


@asynccontextmanager
async def _open_tar() -> AsyncGenerator[Feed]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        outside = Path(folder, "outside")
        outside.write_text("as it was")

        def feed(data: bytes) -> str:
            outcomes = [_unpack(Path(folder, "root"), data, any_links=any_links) for any_links in (False, True)]
            if outside.read_text() != "as it was" or [path.name for path in Path(folder).iterdir()] != ["outside"]:
                raise Fault(f"something is outside: {list(Path(folder).iterdir())}")
            return outcomes[0]

        yield feed


def _unpack(root: Path, data: bytes, *, any_links: bool) -> str:
    root.mkdir()
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if any_links:
            fill_atomically(fd, "new", lambda inner: tar.unpack(io.BytesIO(data), inner, any_links=True))
        else:
            tar.unpack(io.BytesIO(data), fd)
    except OSError as error:
        if any_links and any(root.iterdir()):
            raise Fault("a refused stream left something") from error
        return f"errno {error.errno}"
    else:
        for _ in tar.pack(fd, any_modes=True):
            pass
        return "ok"
    finally:
        os.close(fd)
        _remove(root)


def _remove(root: Path) -> None:
    # A member may have taken every right from its directory; links are not followed.
    for at, folders, _ in os.walk(root):
        for name in folders:
            path = Path(at, name)
            if not path.is_symlink():
                path.chmod(0o700)
    root.chmod(0o700)
    shutil.rmtree(root)


def _make_facts(random: Random) -> bytes:
    snapshot = driver_pb2.RuntimeSnapshot()
    Filler(random, share=0.5).fill(snapshot, 2)
    snapshot.snapshot_id = random.choice(("one", "two"))
    snapshot.size_bytes = max(0, min(2**63 - 1, number(random)))
    try:
        body = json_format.MessageToJson(snapshot).encode()
    except (ValueError, json_format.SerializeToJsonError):
        body = b"{}"
    body = mutated(random, body) if random.random() < 0.6 else body
    check = hashlib.sha256(body).hexdigest().encode()
    return (check if random.random() < 0.9 else mutated(random, check)) + b"\n" + body


def _feed_facts(data: bytes) -> str:
    """Read what is known of a snapshot."""
    try:
        _archive._read("one", data)
    except SnapshotDamaged:
        return "SnapshotDamaged"
    return "ok"


TARGETS = (
    Target("tar", _make_tar, _open_tar),
    Target("snapshot", _make_facts, simple(_feed_facts)),
)
