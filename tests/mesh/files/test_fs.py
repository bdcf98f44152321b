"""`box.fs` through the whole mesh."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync
from sandmeshd.mesh import Mesh

BIG = 9 * 1024 * 1024 + 17


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as made:
        yield made


async def test_text_and_bytes_come_back_as_they_were_written(box: BaseSandboxAsync) -> None:
    await box.fs.write("a/b.txt", "Grüße\n")
    assert await box.fs.read("a/b.txt") == "Grüße\n"
    data = bytes(range(256))
    info = await box.fs.write("/workspace/data", data)
    assert (info.size, info.type) == (256, "file")
    assert await box.fs.read("data", "bytes") == data
    assert await box.fs.read("data", "bytes", offset=250) == data[250:]
    assert await box.fs.read("data", "bytes", offset=3, length=4) == data[3:7]
    assert await box.fs.read("data", "bytes", offset=1000) == b""
    await box.fs.write("empty", b"")
    assert await box.fs.read("empty", "bytes") == b""


async def test_user_code_and_files_see_the_same(box: BaseSandboxAsync) -> None:
    await box.fs.write("script.sh", "echo $0", mode=0o755)
    assert (await box.run_shell_command("./script.sh")).stdout == "./script.sh\n"
    await box.run_shell_command("echo new > made; chmod 640 made")
    assert (await box.fs.stat("made")).mode == 0o640
    await box.fs.write("made", "other")
    assert (await box.fs.stat("made")).mode == 0o640, "the mode of a replaced file stays"


async def test_large_files_pass_both_ways(box: BaseSandboxAsync, tmp_path: Path) -> None:
    data = os.urandom(BIG)
    (tmp_path / "big").write_bytes(data)
    (tmp_path / "big").chmod(0o640)
    heard: list[tuple[int, int]] = []
    await box.fs.write_from_path(tmp_path / "big", "big", progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (BIG, BIG)
    summed = (await box.run_shell_command("sha256sum < big; stat -c %a big")).stdout.split()
    assert summed == [hashlib.sha256(data).hexdigest(), "-", "640"]
    await box.fs.download_to("big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["back", "big"]  # noqa: PTH208 - names alone


async def test_content_may_come_from_a_file_object_or_an_iterator(box: BaseSandboxAsync) -> None:
    async def later() -> AsyncIterator[bytes]:
        for word in (b"a", b"b" * 300_000, b"c"):
            yield word

    def now() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    await box.fs.write("1", io.BytesIO(b"x" * 700_000))
    await box.fs.write("2", later())
    await box.fs.write("3", now())
    assert [(await box.fs.stat(name)).size for name in "123"] == [700_000, 300_002, 7]
    assert await box.fs.read("3") == "one two"


async def test_an_upload_whose_source_fails_is_not_visible(box: BaseSandboxAsync) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 600_000
        raise ZeroDivisionError

    await box.fs.write("kept", "before")
    with pytest.raises(ZeroDivisionError):
        await box.fs.write("kept", broken())
    assert await box.fs.read("kept") == "before"
    assert [info.name for info in await box.fs.list()] == ["kept"]


async def test_entries_are_listed_to_a_depth(box: BaseSandboxAsync) -> None:
    await box.fs.write_many({"d/e/f": "1", "d/g": "22", "h": "333"})
    assert [info.path for info in await box.fs.list()] == ["d", "h"]
    assert [info.path for info in await box.fs.list(depth=9)] == ["d", "d/e", "d/e/f", "d/g", "h"]
    assert [info.path for info in await box.fs.list("d", depth=1)] == ["e", "g"]
    many = {f"many/{number:04}": "" for number in range(3)}
    await box.fs.write_many(many)
    await box.run_shell_command("cd many && touch $(seq 3000)")
    assert len(await box.fs.list("many")) == 3003


async def test_extended_attributes_are_there_where_they_are_asked_for(box: BaseSandboxAsync) -> None:
    program = """
import os
open('marked', 'w').close(), os.mkdir('folder'), os.symlink('marked', 'link')
for path in ('marked', 'folder'):
    os.setxattr(path, 'user.by', b'\\xff ada')
open('full', 'w').close(), os.setxattr('full', 'user.a', b'x' * 2000)
"""
    await box.fs.write("mark.py", program)
    assert (await box.run_shell_command("python3 mark.py")).is_error is False
    ada = {"by": os.fsdecode(b"\xff ada")}
    assert [(await box.fs.stat(one, attributes=True)).attributes for one in ("marked", "folder", "link")] == [ada] * 3
    assert (await box.fs.stat("link", follow=False, attributes=True)).attributes == {}
    listed = {one.name: dict(one.attributes) for one in await box.fs.list(attributes=True)}
    assert listed == {"marked": ada, "folder": ada, "link": {}, "full": {"a": "x" * 2000}, "mark.py": {}}
    assert all(one.attributes == {} for one in [await box.fs.stat("marked"), *await box.fs.list()])


async def test_many_files_are_written_at_a_time_and_each_whole(box: BaseSandboxAsync) -> None:
    begun = asyncio.Event()

    async def waits() -> AsyncIterator[bytes]:
        await begun.wait()
        yield b"first"

    async def begins() -> AsyncIterator[bytes]:
        begun.set()
        yield b"second"

    found = await box.fs.write_many([("one", waits()), ("two", begins()), *((f"n/{n}", str(n)) for n in range(40))])
    assert [info.path for info in found] == ["one", "two", *(f"n/{n}" for n in range(40))]
    assert (await box.run_shell_command("cat one two n/*| wc -c")).stdout.strip() == str(5 + 6 + 10 + 30 * 2)
    with pytest.raises(IsADirectoryError):
        await box.fs.write_many([("n", "a directory is there"), ("other", begins())])
    assert await box.fs.write_many({}) == []


async def test_files_are_moved_and_removed(box: BaseSandboxAsync) -> None:
    await box.fs.write_many({"a": "1", "b": "2", "d/e": "3"})
    with pytest.raises(FileExistsError):
        await box.fs.move("a", "b")
    await box.fs.move("a", "b", replace=True)
    assert await box.fs.read("b") == "1"
    with pytest.raises(OSError, match="recursive") as caught:
        await box.fs.remove("d")
    assert caught.value.errno == errno.ENOTEMPTY
    await box.fs.remove("d", recursive=True)
    assert not await box.fs.exists("d")
    with pytest.raises(FileNotFoundError):
        await box.fs.remove("d")
    await box.fs.remove("d", missing_ok=True)
    await box.fs.mkdir("x/y", mode=0o700)
    assert (await box.fs.stat("x/y")).is_directory
    with pytest.raises(FileExistsError):
        await box.fs.mkdir("x/y", parents=False)


async def test_names_are_bytes(box: BaseSandboxAsync) -> None:
    names = [b"new\nline", b"\xff\xfe", "snow☃".encode(), b"-rf", b" ", b"\\n\"'"]
    for name in names:
        await box.fs.write(name, name)
        assert await box.fs.read(name, "bytes") == name
    listed = [os.fsencode(info.path) for info in await box.fs.list()]
    assert sorted(listed) == sorted(names)
    found = await box.run_ipython_cell("import os; print(sorted(os.listdir(b'.')))")
    assert found.text.strip() == str(sorted(names))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "link/passwd", "/proc/self/environ"])
async def test_what_leads_out_is_refused(box: BaseSandboxAsync, path: str) -> None:
    await box.run_shell_command("mkdir a; ln -s /etc link")
    for work in (box.fs.read(path), box.fs.write(path, "x"), box.fs.stat(path), box.fs.mkdir(path + "/d")):
        with pytest.raises(PermissionError, match="outside"):
            await work


async def test_what_the_system_says_is_an_oserror(box: BaseSandboxAsync) -> None:
    await box.run_shell_command("mkdir d; mkfifo fifo; ln -s nothing dangling")
    with pytest.raises(FileNotFoundError, match="nothing-there"):
        await box.fs.read("nothing-there")
    with pytest.raises(IsADirectoryError):
        await box.fs.read("d")
    with pytest.raises(IsADirectoryError):
        await box.fs.write("d", "x" * 5_000_000)
    with pytest.raises(OSError, match="FIFO"):
        await box.fs.read("fifo")
    await box.fs.write("b", b"\xff")
    with pytest.raises(UnicodeDecodeError):
        await box.fs.read("b")
    assert not await box.fs.exists("dangling")
    assert (await box.fs.stat("dangling", follow=False)).target == "nothing"


async def test_the_sync_box_has_files_too(mesh: Mesh, tmp_path: Path) -> None:
    def use() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            box.fs.write("a", io.BytesIO(b"abc" * 100_000))
            with box.fs.read("a", fmt="stream") as stream:
                assert stream.info.size == 300_000
                assert sum(map(len, stream)) == 300_000
            box.fs.download_to("a", tmp_path / "a")
            assert (tmp_path / "a").stat().st_size == 300_000
            assert [info.path for info in box.fs.list()] == ["a"]
            box.fs.write("t", "text")
            assert box.fs.read("t") == "text"

    await asyncio.to_thread(use)


async def unsized(size: int) -> AsyncIterator[bytes]:
    """Give so many bytes, without saying so before."""
    for _ in range(0, size, 65536):
        yield bytes(65536)


async def test_a_file_larger_than_files_may_be_is_refused_and_nothing_is_kept(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0], limits={"file_size": 1 << 20}) as box:
        await box.fs.write("fits", bytes(1 << 20))
        for data in (bytes(3 << 20), unsized(3 << 20)):
            with pytest.raises(OSError, match="nothing was kept") as caught:
                await box.fs.write("large", data)
            assert caught.value.errno == errno.EFBIG
        assert (await box.run_shell_command("ls -A")).stdout == "fits\n"


@pytest.mark.needs("control groups")
async def test_a_file_larger_than_the_disk_is_refused_and_nothing_is_kept(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0], limits={"disk": 8 << 20}) as box:
        for data in (bytes(16 << 20), unsized(16 << 20)):
            with pytest.raises(OSError, match="nothing was kept") as caught:
                await box.fs.write("large", data)
            assert caught.value.errno == errno.ENOSPC
        assert (await box.run_shell_command("ls -A")).stdout == ""
        await box.fs.write("fits", bytes(4 << 20))
