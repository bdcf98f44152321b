"""Layers as overlayfs takes them, by root and, once more, by an ordinary user with subordinate ids."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from sandmesh.errors import InvalidArgument, SandmeshError, TooLarge
from sandmeshd.images.image import PulledImage
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate
from tests.image_layouts import entry, file_entry, make_image, make_tar
from tests.ordinary import ordinary_home, run_as_ordinary, run_tests, subordinate_home

DIR, LINK, HARD, DEVICE = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE
FIRST_UID = 0 if os.geteuid() == 0 else find_subordinate().uids.start


async def pull(
    store: ImageStore, folder: Path, *layers: bytes, compress: Callable[[bytes], bytes] = gzip.compress
) -> PulledImage:
    layout = make_image(layers, {"Env": ["A=b"]}, compress).write_layout(folder / f"oci-{os.urandom(4).hex()}")
    return await store.pull(f"oci:{layout}")


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid - FIRST_UID, status.st_gid - FIRST_UID


async def test_files_have_the_owners_modes_times_and_attributes_of_the_layer(store: ImageStore, folder: Path) -> None:
    layer = make_tar(
        entry("home", DIR, uid=1000, gid=1000, mode=0o1777, mtime=5),
        file_entry("home/program", b"x" * 3000, uid=1000, gid=100, mode=0o4755, mtime=1234567890),
        entry("home/link", LINK, linkname="/etc/passwd", uid=7),
        entry("home/hard", HARD, linkname="home/program"),
        file_entry("ping", b"p", mode=0o755, pax_headers={"SCHILY.xattr.user.note": "kept"}),
        file_entry("holes", bytes(4 << 20)),
        entry("pipe", tarfile.FIFOTYPE),
        entry("null", DEVICE, devmajor=1, devminor=3),
        file_entry("nobody", uid=4_000_000_000),
        file_entry(f"deep/{'d' * 120}/file", b"long"),
    )
    image = await pull(store, folder, layer)
    (root,) = image.layers
    program, link = root / "home" / "program", root / "home" / "link"
    assert owner(root) == (0, 0)
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert (owner(program), stat.S_IMODE(program.stat().st_mode)) == ((1000, 100), 0o4755)
    assert int(program.stat().st_mtime) == 1234567890
    assert (owner(link)[0], str(link.readlink())) == (7, "/etc/passwd")
    assert program.stat().st_nlink == 2
    assert (stat.S_IMODE((root / "home").stat().st_mode), (root / "home").stat().st_mtime) == (0o1777, 5.0)
    assert os.getxattr(root / "ping", "user.note") == b"kept"
    assert ((root / "holes").stat().st_size, (root / "holes").stat().st_blocks < 100) == (4 << 20, True)
    assert (root / "pipe").is_fifo()
    assert not (root / "null").exists()
    assert owner(root / "nobody") == (65534, 0)
    assert image.left_out == {"device nodes": 1, "owners above 65535": 1}
    assert image.config.env == {"A": "b"}
    assert store.find(image.reference) == image
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700


async def test_whiteouts_and_opaque_directories_are_as_overlayfs_expects_them(store: ImageStore, folder: Path) -> None:
    lower = make_tar(entry("a", DIR), file_entry("a/old"), file_entry("gone"), entry("b", DIR), file_entry("b/old"))
    upper = make_tar(
        entry("a", DIR), file_entry("a/.wh..wh..opq"), file_entry("a/new"), file_entry(".wh.gone"),
        file_entry(".wh.b"), entry("b", DIR), file_entry("b/new"), file_entry(".wh..wh.plnk"),
    )  # fmt: skip
    image = await pull(store, folder, lower, upper)
    _, root = image.layers
    gone = (root / "gone").lstat()
    assert (stat.S_ISCHR(gone.st_mode), gone.st_rdev) == (True, 0)
    assert os.getxattr(root / "a", "user.overlay.opaque") == b"y"
    assert os.getxattr(root / "b", "user.overlay.opaque") == b"y"
    assert sorted(path.name for path in root.iterdir()) == ["a", "b", "gone"]


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (make_tar(file_entry("../escaped")), "leads out"),
        (make_tar(file_entry("a/../../escaped")), "leads out"),
        (make_tar(entry("hard", HARD, linkname="../../etc/passwd")), "leads out"),
        (make_tar(entry("hard", HARD, linkname="etc/passwd")), "not in the same layer"),
        (make_tar(file_entry(".wh...")), "not a whiteout"),
        (make_tar(file_entry(".wh.")), "not a whiteout"),
        (make_tar(file_entry(".wh.a/b")), "below a whiteout"),
        (make_tar(entry("a", DIR), file_entry("a/b"), file_entry("a")), "later something else"),
        (make_tar(entry("s", b"S")), "not supported"),
        (make_tar(file_entry("x", b"whole"))[:514], "ends within"),
        (b"no tar at all" * 100, "not a tar"),
    ],
)
async def test_hostile_layers_are_refused_and_leave_nothing(
    store: ImageStore, folder: Path, layer: bytes, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=why):
        await pull(store, folder, layer)
    assert list((store.directory / "layers").iterdir()) == []


async def test_links_lead_to_nothing_outside_of_the_layer(store: ImageStore, folder: Path) -> None:
    layer = make_tar(
        entry("out", LINK, linkname=str(folder)),
        file_entry("out/escaped", b"1"),
        entry("up", LINK, linkname="../../../../../../.."),
        file_entry("up/climbed", b"2"),
        file_entry("/absolute", b"3"),
    )
    image = await pull(store, folder, layer)
    assert not (folder / "escaped").exists()
    assert "climbed" not in os.listdir("/")  # noqa: PTH208
    assert (image.layers[0] / "climbed").read_bytes() == b"2"
    assert (image.layers[0] / "absolute").read_bytes() == b"3"


async def test_overlayfs_own_attributes_do_not_come_from_layers(store: ImageStore, folder: Path) -> None:
    attributes = {f"SCHILY.xattr.{name}": "/etc" for name in ("user.overlay.redirect", "trusted.overlay.redirect")}
    image = await pull(store, folder, make_tar(entry("a", DIR, pax_headers=attributes)))
    assert os.listxattr(image.layers[0] / "a") == []
    assert image.left_out == {"attributes 'user'.*": 1, "attributes 'trusted'.*": 1}


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (make_tar(file_entry("bomb", bytes(65 << 20))), "SANDMESH_IMAGE_BYTES"),
        (make_tar(*(file_entry(f"f{number}") for number in range(10_001))), "SANDMESH_IMAGE_FILES"),
        (make_tar(*(file_entry(f"{number}{'/d' * 1500}") for number in range(8))), "SANDMESH_IMAGE_FILES"),
        (entry("x", tarfile.XHDTYPE, size=1 << 33).tobuf(tarfile.GNU_FORMAT), "header"),
    ],
    ids=["bytes", "files", "parents", "header"],
)
async def test_bombs_are_refused(store: ImageStore, folder: Path, layer: bytes, why: str) -> None:
    with pytest.raises(TooLarge, match=why):
        await pull(store, folder, layer)
    assert list((store.directory / "layers").iterdir()) == []


def as_it_is(data: bytes) -> bytes:
    return data


def in_two_members(data: bytes) -> bytes:
    return gzip.compress(data[:700]) + gzip.compress(data[700:])


def with_zstd(data: bytes) -> bytes:
    return zstd.compress(data)


@pytest.mark.parametrize("compress", [with_zstd, as_it_is, in_two_members])
async def test_layers_are_compressed_in_any_way(
    store: ImageStore, folder: Path, compress: Callable[[bytes], bytes]
) -> None:
    image = await pull(store, folder, make_tar(file_entry("file", b"content" * 500)), compress=compress)
    assert (image.layers[0] / "file").read_bytes() == b"content" * 500


async def test_a_damaged_layer_is_refused(store: ImageStore, folder: Path) -> None:
    def damage(data: bytes) -> bytes:
        return gzip.compress(data)[:-20]

    with pytest.raises(SandmeshError, match="decompressed"):
        await pull(store, folder, make_tar(file_entry("file", os.urandom(5000))), compress=damage)


async def test_directories_that_a_layer_does_not_list_are_as_lower_layers_have_them(
    store: ImageStore, folder: Path
) -> None:
    lower = make_tar(
        entry("tmp", DIR, mode=0o1777),
        entry("home", DIR, uid=5, gid=6, mode=0o755),
        entry("plain", DIR),
        entry("old", DIR, uid=9),
    )
    middle = make_tar(entry("old", DIR, uid=7, mode=0o700), file_entry(".wh.home"))
    upper = make_tar(*(file_entry(f"{name}/new") for name in ("tmp", "home", "plain", "old", "own/deep")))
    image = await pull(store, folder, lower, middle, upper)
    top = image.layers[-1]
    assert len(image.layers) == 4
    assert sorted(path.name for path in top.iterdir()) == ["old", "tmp"]
    assert (stat.S_IMODE((top / "tmp").stat().st_mode), owner(top / "old")) == (0o1777, (7, 0))
    assert store.find(image.reference) == image
    await store.prune(unused_seconds=3600)
    assert store.find(image.reference) == image
    assert [path.name for path in image.layers[2].iterdir() if path.name in {"tmp", "own"}] != []


async def test_files_below_a_link_of_a_lower_layer_are_refused(store: ImageStore, folder: Path) -> None:
    lower = make_tar(entry("usr/lib", DIR), entry("lib", LINK, linkname="usr/lib"))
    with pytest.raises(InvalidArgument, match="which is a link in a lower one"):
        await pull(store, folder, lower, make_tar(file_entry("lib/new")))
    assert store.list_all() == []


@pytest.mark.needs("root")
def test_an_ordinary_user_with_subordinate_ids_has_the_same_layers() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "not ordinary")


@pytest.mark.needs("root")
def test_an_ordinary_user_without_subordinate_ids_is_told_how_to_get_some() -> None:
    code = "import asyncio; from pathlib import Path; from sandmeshd.images.settings import ImageSettings as S;"
    code += "from sandmeshd.images.store import ImageStore; asyncio.run(ImageStore(S(), Path.home() / 'i').pull('a'))"
    with ordinary_home() as home:
        done = run_as_ordinary(home, sys.executable, "-c", code)
        assert not (home / "i").exists()
    assert "usermod --add-subuids" in done.stderr
