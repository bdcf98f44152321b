"""Images of registries: names, manifests, configurations, credentials, and layers as tars."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import Index, Platform, ProgramConfig, choose_manifest, parse_document, parse_manifest
from sandmeshd.images.image import to_image_config
from sandmeshd.images.layers.tar_entries import ImageRefused, TarEntry, read_entries
from sandmeshd.images.layers.unpacker import Bounds, TarStream, Unpacker
from sandmeshd.images.reference import LocalReference, parse_reference
from sandmeshd.images.registry.authentication import parse_challenge
from sandmeshd.images.registry.credentials import parse_credentials, to_credentials
from tests.fuzz.mutation import TEXTS, mutated, text
from tests.fuzz.target import Fault, Feed, Target
from tests.image_layouts import CONFIG, INDEX, LAYER, MANIFEST

from .wire import simple

_DIGEST: Final = "sha256:" + "0" * 64
_PARTS: Final = (
    "docker.io",
    "localhost:5000",
    "[::1]",
    "library",
    "python",
    ":",
    ":3.12",
    "/",
    "@",
    _DIGEST,
    "oci:/a",
    "tar:./",
)

_NAMES: Final = (
    "a",
    "a/b",
    "a/b/c",
    ".wh.a",
    ".wh..wh..opq",
    "a/.wh.b",
    ".wh..",
    "../out",
    "/out",
    "link/x",
    "./",
    "..",
    "n" * 300,
)
_LINKS: Final = ("a", "..", "../../outside", "/outside", "link", ".", "a/../..", "x" * 4096)
_KINDS: Final = (
    tarfile.REGTYPE,
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    b"S",
)
_COMMANDS: Final[tuple[Any, ...]] = (None, [], ["x"], "x", {})
_PORTS: Final[tuple[Any, ...]] = (None, {"80/tcp": {}}, [])
_PAX: Final = (
    "path",
    "size",
    "uid",
    "mtime",
    "linkpath",
    "GNU.sparse.map",
    "SCHILY.xattr.user.x",
    "SCHILY.xattr.user.overlay.redirect",
)


def _make_name(random: Random) -> bytes:
    name = "".join(random.choice((*_PARTS, text(random)[:40])) for _ in range(random.randint(1, 6)))
    return name.encode(errors="replace")


def _feed_name(data: bytes) -> str:
    """Parse the name of an image, and what is printed of it again."""
    try:
        parsed = parse_reference(data.decode(errors="replace"))
    except InvalidArgument:
        return "InvalidArgument"
    if not isinstance(parsed, LocalReference) and parse_reference(str(parsed)) != parsed:
        raise Fault(f"{parsed} is another name when it is parsed again")
    return "ok"


def _descriptor(random: Random, kind: str) -> dict[str, Any]:
    platform = {"os": "linux", "architecture": random.choice(("amd64", "arm64", "", None))}
    return {"mediaType": random.choice((kind, kind, text(random))), "digest": _DIGEST, "size": 7, "platform": platform}


def _make_document(random: Random) -> bytes:
    layers = [_descriptor(random, f"{LAYER}+gzip") for _ in range(random.choice((0, 1, 3, 200)))]
    config: dict[str, Any] = {
        "Env": random.choice((None, ["A=b", "=", text(random)], "A", [1])),
        "Cmd": random.choice(_COMMANDS),
        "User": random.choice((None, "", "1000:1", 5)),
        "ExposedPorts": random.choice(_PORTS),
        "Labels": random.choice((None, {text(random): text(random)}, {"a": 1})),
    }
    document = random.choice(
        (
            {"config": _descriptor(random, CONFIG), "layers": layers},
            {"manifests": [_descriptor(random, random.choice((MANIFEST, INDEX))) for _ in range(3)]},
            {"architecture": "amd64", "os": "linux", "config": config, "rootfs": {"diff_ids": [_DIGEST, text(random)]}},
        )
    )
    data = json.dumps(document).encode()
    return mutated(random, data) if random.random() < 0.6 else data


def _feed_document(data: bytes) -> str:
    """Parse a document as each of those that registries have."""
    outcomes = [
        _outcome(lambda: parse_manifest(data)),
        _outcome(lambda: choose_manifest(parse_document(data, Index), Platform(os="linux", architecture="amd64"))),
        _outcome(lambda: to_image_config(parse_document(data, ProgramConfig))),
    ]
    return outcomes[0]


def _outcome(parse: Callable[[], object]) -> str:
    try:
        parse()
    except InvalidArgument:
        return "InvalidArgument"
    return "ok"


def _make_login(random: Random) -> bytes:
    login = {"auth": random.choice(("YTpi", "!", text(random), None)), "identitytoken": random.choice((None, "t", 1))}
    data = json.dumps({"auths": {"a": login}, "credsStore": text(random), "credHelpers": {"a": text(random)}}).encode()
    return mutated(random, data) if random.random() < 0.6 else data


def _feed_login(data: bytes) -> str:
    """Parse Docker's file of credentials, and a header of a registry."""
    parse_challenge(data.decode(errors="replace"))

    def parse() -> None:
        file = parse_credentials(data, Path("config.json"))
        for login in file.logins.values() if file is not None else ():
            to_credentials(login)

    return _outcome(parse)


def _make_layer(random: Random) -> bytes:
    made = bytearray()
    for _ in range(random.randint(1, 8)):
        info = tarfile.TarInfo(random.choice(_NAMES) if random.random() < 0.8 else text(random))
        info.type, info.linkname = random.choice((tarfile.REGTYPE, *_KINDS)), random.choice(_LINKS)
        info.mode, info.uid = random.choice((0o644, 0o755, 0, 0o7777)), random.choice((0, 1000, 2**31))
        content = random.randbytes(random.choice((0, 1, 512, 3000))) if info.type == tarfile.REGTYPE else b""
        info.size = len(content)
        if random.random() < 0.3:
            info.pax_headers = {random.choice(_PAX): text(random)}
        try:
            made += info.tobuf(random.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)), "utf-8", "surrogateescape")
        except ValueError:
            continue
        made += content + bytes(-len(content) % 512)
    data = bytes(made) + bytes(1024)
    return (
        mutated(random, data, tuple(one.encode() for one in TEXTS if len(one) < 100)) if random.random() < 0.5 else data
    )


@asynccontextmanager
async def _open_layer() -> AsyncGenerator[Feed]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        outside, root = Path(folder, "outside"), Path(folder, "root")
        outside.write_text("as it was")
        root.mkdir()
        yield lambda data: _unpack(data, root) if os.geteuid() == 0 else _read(data)
        if outside.read_text() != "as it was" or len(list(Path(folder).iterdir())) != 2:
            raise Fault(f"something is outside: {list(Path(folder).iterdir())}")


def _read(data: bytes) -> str:
    """Read a layer's entries, and the content of each file."""
    stream = io.BytesIO(data)

    def take(entry: TarEntry) -> None:
        stream.read(entry.size)

    try:
        for entry in read_entries(stream):
            take(entry)
    except ImageRefused as refusal:
        return refusal.kind
    return "ok"


def _unpack(data: bytes, root: Path) -> str:
    """Unpack a layer as the program does: in a process of its own, which cannot leave the directory."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chroot(root)
            os.chdir("/")
            os.write(writer, _outcome_inside(data).encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    os.waitpid(child, 0)
    if outcome not in {"ok", "bad", "large", "errno"}:
        raise Fault(outcome or "it died")
    return outcome


def _outcome_inside(data: bytes) -> str:
    """Unpack into a fresh directory of the root."""
    place = f"/{len(os.listdir('/'))}"  # noqa: PTH208
    os.mkdir(place)  # noqa: PTH102
    os.chroot(place)
    os.chdir("/")
    try:
        bounds = Bounds(1 << 20, 1000)
        Unpacker(bounds).unpack(TarStream(io.BytesIO(data), bounds))
    except ImageRefused as refusal:
        return refusal.kind
    except OSError:
        return "errno"
    except Exception:
        return traceback.format_exc()
    return "ok"


TARGETS = (
    Target("image-names", _make_name, simple(_feed_name)),
    Target("image-documents", _make_document, simple(_feed_document)),
    Target("image-credentials", _make_login, simple(_feed_login)),
    Target("image-layers", _make_layer, _open_layer),
)
