"""Confinement on kernels without openat2, and files that land whole."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, cast

import pytest

from sandmesh.shared.files.atomic_directory import fill_atomically
from sandmesh.shared.files.atomic_file import AtomicFile
from sandmesh.shared.files.tar import pack, pack_several, unpack, unpack_several
from sandmesh.shared.files.tar_headers import ForwardStream, Member, header
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.replacement import open_replacement
from sandmeshd.agent.files.syscalls import open_beneath, walk_beneath

from .conftest import SENTINEL

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@pytest.fixture
def fd(root: Path) -> Iterator[int]:
    """The workspace's directory."""
    opened = os.open(root, DIRECTORY)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("path", ["link/secret", "link", "a/../../outside/secret", "..", "loop/x", "a/file-link"])
def test_a_walk_goes_through_no_link_and_never_up(fd: int, root: Path, outside: Path, path: str) -> None:
    (root / "a").mkdir()
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    (root / "a/file-link").symlink_to(outside / "secret")
    for flags in (os.O_RDONLY, os.O_PATH, os.O_WRONLY):
        with pytest.raises(OSError, match="cross-device") as caught:
            os.close(walk_beneath(fd, path, flags))
        assert caught.value.errno == errno.EXDEV


def test_a_walk_says_what_the_system_says(fd: int, root: Path) -> None:
    (root / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        walk_beneath(fd, "a/b", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        walk_beneath(fd, "file/b", os.O_RDONLY)
    with os.fdopen(walk_beneath(fd, "./file", os.O_RDONLY)) as file:
        assert file.read() == "x"


@pytest.mark.parametrize("opens", [open_beneath, walk_beneath])
def test_names_that_are_swapped_for_links_all_the_time_never_lead_out(
    fd: int, root: Path, outside: Path, opens: object
) -> None:
    (root / "d").mkdir()
    (root / "d/secret").write_text("inside")
    (root / "l").symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            (root / "d").rename(root / "x")
            (root / "l").rename(root / "d")
            (root / "d").rename(root / "l")
            (root / "x").rename(root / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    try:
        tries = 0
        while tries < 3000 or ("inside" not in seen and tries < 300_000):
            tries += 1
            try:
                with os.fdopen(opens(fd, "d/secret", os.O_RDONLY)) as file:  # type: ignore[operator]
                    seen.add(file.read())
            except OSError as error:
                seen.add(errno.errorcode[error.errno or 0])
    finally:
        ended.set()
        swapper.join()
    assert "inside" in seen
    assert SENTINEL not in seen


def test_an_upload_that_writes_where_links_are_swapped_stays_inside(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    (root / "d").mkdir()
    (root / "l").symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        while not ended.is_set():
            (root / "d").rename(root / "x")
            (root / "l").rename(root / "d")
            (root / "d").rename(root / "l")
            (root / "x").rename(root / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    written, tries = 0, 0
    try:
        while written < 50 and tries < 200_000:
            tries += 1
            # What is refused meanwhile is not the point.
            with suppress(OSError, ToolFailure), workspace.parent("d/secret") as (directory, name):
                made = AtomicFile(directory, name)
                with closing(made):
                    os.write(made.fd, b"new")
                    made.commit(replace=True, mode=None)
                    written += 1
    finally:
        ended.set()
        swapper.join()
    assert written
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == SENTINEL


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_file_lands_whole_or_leaves_nothing(fd: int, root: Path, anonymous: bool) -> None:
    (root / "file").write_text("before")
    cut = AtomicFile(fd, "file", anonymous=anonymous)
    os.write(cut.fd, b"half")
    cut.close()
    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "before"}
    made = AtomicFile(fd, "file", anonymous=anonymous)
    os.write(made.fd, b"after")
    with pytest.raises(FileExistsError):
        made.commit(replace=False, mode=None)
    made.commit(replace=True, mode=0o640)
    made.close()
    assert {path.name: path.read_text() for path in root.iterdir()} == {"file": "after"}
    assert (root / "file").stat().st_mode & 0o777 == 0o640


def test_another_name_of_a_replaced_file_keeps_what_it_had(workspace: Workspace, root: Path, outside: Path) -> None:
    (root / "file").hardlink_to(outside / "secret")
    with open_replacement(workspace, "file", make_parents=True) as (made, mode):
        os.write(made.fd, b"new")
        made.commit(replace=True, mode=mode)
    assert (outside / "secret").read_text() == SENTINEL
    assert (root / "file").read_text() == "new"


def member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"evil"
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


EVIL = {
    "absolute": [member("/tmp/evil")],
    "up": [member("a/../../evil")],
    "link out": [member("l", tarfile.SYMTYPE, "/etc")],
    "link up": [member("a/l", tarfile.SYMTYPE, "../../x")],
    "link in disguise": [member("d/l", tarfile.SYMTYPE, ".."), member("m", tarfile.SYMTYPE, "d/l/../..")],
    "through a link": [member("l", tarfile.SYMTYPE, "d"), member("l/evil")],
    "hard link out": [member("h", tarfile.LNKTYPE, "../outside/secret")],
    "hard link absolute": [member("h", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link to a link": [member("l", tarfile.SYMTYPE, "d"), member("h", tarfile.LNKTYPE, "l")],
    "device": [member("dev", tarfile.CHRTYPE)],
    "fifo": [member("fifo", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("name", EVIL)
def test_an_archive_that_leads_out_leaves_nothing(fd: int, root: Path, outside: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for info, content in [member("good"), *EVIL[name]]:
            archive.addfile(info, io.BytesIO(content) if info.size else None)
    with pytest.raises(OSError, match="nothing of it is kept"):
        fill_atomically(fd, "new", lambda place: unpack(io.BytesIO(data.getvalue()), place))
    assert list(root.iterdir()) == []
    assert (outside / "secret").read_text() == SENTINEL
    assert not Path("/tmp/evil").exists()


def test_what_is_no_archive_or_is_cut_off_leaves_nothing(fd: int, root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"x" * 100_000)
    opened = os.open(source, DIRECTORY)
    whole = b"".join(pack(opened))
    os.close(opened)
    for data in (b"no archive" * 100, whole[:50_000]):
        with pytest.raises(OSError, match="not a complete tar stream"):
            fill_atomically(fd, "new", lambda place, data=data: unpack(io.BytesIO(data), place))  # type: ignore[misc]
    assert list(root.iterdir()) == []
    fill_atomically(fd, "new", lambda place: unpack(io.BytesIO(whole), place))
    assert (root / "new/file").stat().st_size == 100_000


def _tree_with_set_ids(folder: Path) -> None:
    (folder / "d").mkdir()
    (folder / "d/program").write_text("x")
    (folder / "d/program").chmod(0o4755)
    (folder / "d/link").symlink_to("program")
    (folder / "d").chmod(0o2775)
    for name in ("d/program", "d/link", "d"):
        os.utime(folder / name, (1_000_000_000, 1_000_000_000), follow_symlinks=False)


def _seen(folder: Path) -> dict[str, tuple[int, int]]:
    found = {name: (folder / name).lstat() for name in ("d", "d/program", "d/link")}
    return {name: (one.st_mode, int(one.st_mtime)) for name, one in found.items()}


def _restored(stream: bytes, fd: int) -> None:
    fill_atomically(fd, ".", lambda staged: unpack_several(io.BytesIO(stream), {"w": staged}))


def test_snapshots_keep_set_id_bits_and_the_times_of_directories_and_links(tmp_path: Path, fd: int, root: Path) -> None:
    _tree_with_set_ids(tmp_path)
    source = os.open(tmp_path, DIRECTORY)
    stream = b"".join(pack_several({"w": source}))
    os.close(source)
    before = _seen(tmp_path)
    assert {seconds for _, seconds in before.values()} == {1_000_000_000}
    _restored(stream, fd)
    assert _seen(root) == before
    # Into directories that are there already, too.
    os.utime(root / "d")
    _restored(stream, fd)
    assert _seen(root) == before


def test_an_archive_of_anybody_grants_no_identity(tmp_path: Path, fd: int, root: Path) -> None:
    _tree_with_set_ids(tmp_path)
    source = os.open(tmp_path, DIRECTORY)
    stream = b"".join(pack(source))
    os.close(source)
    unpack(io.BytesIO(stream), fd)
    assert [(root / name).stat().st_mode & 0o7777 for name in ("d", "d/program")] == [0o775, 0o755]


SECOND = 10**9
PLAIN_TIMES = (0, SECOND, (8**11 - 1) * SECOND)


def read_member(cls: type[tarfile.TarInfo], data: bytes) -> dict[str, object]:
    """Read the first member of a stream as what does not depend on the release of Python."""
    source = ForwardStream(io.BytesIO(data))
    with tarfile.TarFile(fileobj=cast("IO[bytes]", source), tarinfo=cls, encoding="utf-8") as archive:
        member = archive.next()
        assert member is not None
        info: dict[str, object] = {**member.get_info(), "chksum": 0, "at": member.offset_data, "next": archive.offset}
        info["mtime"] = round(member.mtime + getattr(member, "rest", 0) / SECOND, 3)
    return {name: value for name, value in info.items() if not name.startswith("dev")}


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize("path", ["a", "a/" + "b" * 97, "a/" + "b" * 99, "n" * 300, "größe", "x y\n"])
@pytest.mark.parametrize("size", [0, 8**11 - 1, 8**11])
@pytest.mark.parametrize("time", [*PLAIN_TIMES, 8**11 * SECOND, -SECOND, 1, 1795762402308 * 10**6 + 5])
def test_headers_written_here_say_what_those_of_tarfile_say(kind: bytes, path: str, size: int, time: int) -> None:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime = kind, 0o4755, cast("int", time / SECOND if time % SECOND else time // SECOND)
    info.linkname = "../to/there" if kind == tarfile.SYMTYPE else ""
    info.size = size if kind == tarfile.REGTYPE else 0
    written = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    made = header(path, 0o4755, info.size, time, kind, info.linkname)
    if time in PLAIN_TIMES:
        assert (made is None) == (len(written) > 512)
    if made is not None:
        first, *others = [read_member(cls, data) for cls in (tarfile.TarInfo, Member) for data in (made, written)]
        assert all(other == first for other in others)


@pytest.mark.parametrize("time", [7 * SECOND, 7 * SECOND + 5])
@pytest.mark.parametrize("at", [0, 100, 124, 136, 148, 156, 257, 300, 511])
def test_a_header_with_another_byte_is_read_as_tarfile_reads_it(at: int, time: int) -> None:
    data = bytearray(header("a/b", 0o644, 5, time, tarfile.REGTYPE) or b"")
    for start in range(0, len(data), 512):
        broken = bytearray(data)
        broken[start + at] ^= 1
        outcomes: list[str] = []
        for cls in (tarfile.TarInfo, Member):
            try:
                outcomes.append(str(read_member(cls, bytes(broken))))
            except tarfile.TarError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_a_header_of_gigabytes_is_refused_before_it_is_read(fd: int) -> None:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 1 << 32
    data = info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape") + bytes(1 << 20)
    with pytest.raises(OSError, match="a header of 4,294,967,296 bytes") as caught:
        unpack(io.BytesIO(data), fd)
    assert caught.value.errno == errno.EBADMSG


def test_holes_are_filled_and_extended_attributes_are_left_out_as_the_pages_say(fd: int, root: Path) -> None:
    (root / "from").mkdir()
    (root / "to").mkdir()
    with (root / "from/sparse").open("wb") as file:
        file.truncate(1 << 20)
    os.setxattr(root / "from/sparse", "user.note", b"x")
    opened = [os.open(root / name, DIRECTORY) for name in ("from", "to")]
    try:
        unpack(io.BytesIO(b"".join(pack(opened[0]))), opened[1])
    finally:
        for one in opened:
            os.close(one)
    assert (root / "to/sparse").read_bytes() == bytes(1 << 20)
    assert (root / "to/sparse").stat().st_blocks * 512 >= 1 << 20
    assert os.listxattr(root / "to/sparse") == []
    for page in ("snapshots", "storage"):
        words = " ".join(Path("docs", f"{page}.md").read_text().split())
        assert "holes of sparse files are filled, and extended attributes are lost" in words
