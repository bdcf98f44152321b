"""Reading, writing, listing, moving."""

from __future__ import annotations

import codecs
import json
import os
import resource
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmesh import tools
from sandmesh.tools import Tool
from sandmeshd.agent.calls.answer import Answer
from sandmeshd.agent.tools.files import HANDLERS, MOST_READ

Text = Callable[[Tool], str]
Run = Callable[[Tool], Answer]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def largest_file(size: int) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def ordinary_user() -> Generator[None]:
    """Lay root's rights aside: permissions do not bind root."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_every_declared_filesystem_tool_has_a_handler() -> None:
    assert set(HANDLERS) == {tool for tool in tools.TOOLS.values() if tool.group == "filesystem"}


@pytest.mark.parametrize(
    "content", ["", "one\n", "no end", "windows\r\nends\r\n", "naïve 你好 🎈\n", "\ufeffbom", "a\0b"]
)
def test_a_text_comes_back_as_it_was_written(text_of: Text, root: Path, content: str) -> None:
    text_of(tools.WriteFile("deep/er/file.txt", content))
    assert text_of(tools.ReadFile("deep/er/file.txt")) == content
    assert (root / "deep/er/file.txt").read_bytes() == content.encode()


def test_an_absolute_path_below_root_or_a_granted_directory_is_taken(text_of: Text, root: Path, granted: Path) -> None:
    text_of(tools.WriteFile(f"{root}/a", "in root"))
    text_of(tools.WriteFile(f"{granted}//b", "in granted"))
    assert text_of(tools.ReadFile("a")) == "in root"
    assert (granted / "b").read_text() == "in granted"


def test_writing_keeps_the_mode_and_leaves_nothing_else(text_of: Text, root: Path) -> None:
    file = root / "run.sh"
    file.write_text("old")
    file.chmod(0o750)
    text_of(tools.WriteFile("run.sh", "new"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert names_in(root) == ["run.sh"]


def test_a_new_file_has_the_mode_that_the_umask_gives(text_of: Text, root: Path) -> None:
    text_of(tools.WriteFile("new", "x"))
    (root / "other").write_text("y")
    assert (root / "new").stat().st_mode == (root / "other").stat().st_mode


def test_a_write_that_fails_leaves_the_old_text_and_no_temporary_file(failure_of: Text, root: Path) -> None:
    (root / "file").write_text("old")
    with largest_file(4096):
        said = failure_of(tools.WriteFile("file", "x" * 8192))
    assert "larger than files may be" in said
    assert (root / "file").read_text() == "old"
    assert names_in(root) == ["file"]


def test_a_reader_sees_the_old_text_or_the_new_and_never_a_part(run: Run, text_of: Text) -> None:
    texts = ["a" * 300_000, "b" * 200_000]
    run(tools.WriteFile("file", texts[0]))
    stop = threading.Event()

    def write() -> None:
        for at in range(60):
            run(tools.WriteFile("file", texts[at % 2]))
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: set[str] = set()
    while not stop.is_set():
        seen.add(text_of(tools.ReadFile("file")))
    writer.join()
    assert seen <= set(texts)


def test_a_link_is_written_through_and_stays_a_link(text_of: Text, root: Path) -> None:
    (root / "real").write_text("old")
    (root / "link").symlink_to("real")
    (root / "absolute").symlink_to(root / "real")
    text_of(tools.WriteFile("link", "one"))
    assert (root / "real").read_text() == "one"
    text_of(tools.WriteFile("absolute", "two"))
    assert (root / "real").read_text() == "two"
    assert (root / "link").is_symlink()
    assert (root / "absolute").is_symlink()


def test_what_is_not_text_is_refused_and_not_mangled(failure_of: Text, root: Path) -> None:
    (root / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = failure_of(tools.ReadFile("image.png"))
    assert "binary" in said
    assert "base64" in said


def test_a_file_over_the_bound_is_refused_with_its_size_and_a_way(failure_of: Text, root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(MOST_READ + 1)
    said = failure_of(tools.ReadFile("big"))
    assert f"{MOST_READ + 1:,}" in said
    assert "head" in said


def test_several_files_come_in_order_with_failures_in_place(text_of: Text, root: Path, outside: Path) -> None:
    (root / "a").write_text("A")
    (root / "b").write_text("B\n")
    said = text_of(tools.ReadMultipleFiles(["a", "missing", str(outside / "secret"), "b"]))
    first, missing, refused, last = said.split("\n---\n")
    assert first == "a:\nA\n"
    assert missing.startswith("missing: Error - ")
    assert "is outside" in refused
    assert last == "b:\nB\n\n"


def test_several_files_share_one_bound(text_of: Text, root: Path) -> None:
    (root / "half").write_text("x" * (MOST_READ // 2 + 1))
    first, second = text_of(tools.ReadMultipleFiles(["half", "half"])).split("\n---\n")
    assert len(first) > MOST_READ // 2
    assert second.startswith("half: Error - ")


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (tools.ReadFile("missing"), "not there"),
        (tools.ReadFile("folder"), "is a directory"),
        (tools.ReadFile("file/below"), "not a directory"),
        (tools.ReadFile("loop"), "symbolic links"),
        (tools.ReadFile("n" * 300), "too long"),
        (tools.ReadFile("a/" * 3000), "too long"),
        (tools.ReadFile("a\0b"), "NUL"),
        (tools.WriteFile("folder", "x"), "is a directory"),
        (tools.WriteFile("file/below", "x"), "not a directory"),
        (tools.WriteFile("loop", "x"), "symbolic links"),
        (tools.WriteFile("dangling/below", "x"), "not a directory"),
        (tools.WriteFile(".", "x"), "stays as it is"),
        (tools.WriteFile("new/..", "x"), "name the file"),
        (tools.CreateDirectory("file"), "not a directory"),
        (tools.ListDirectory("file"), "not a directory"),
        (tools.ListDirectory("missing"), "not there"),
        (tools.DirectoryTree("missing"), "not there"),
        (tools.SearchFiles("missing", "x"), "not there"),
        (tools.GetFileInfo("missing"), "not there"),
        (tools.MoveFile("missing", "to"), "not there"),
        (tools.MoveFile("file", "missing/to"), "missing/to: it is not there"),
        (tools.MoveFile("folder", "folder/within"), "into itself"),
    ],
)
def test_what_the_system_refuses_is_said_in_plain_words(failure_of: Text, root: Path, tool: Tool, words: str) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("file")
    assert words in failure_of(tool)


def test_a_read_only_file_is_not_replaced(failure_of: Text, root: Path) -> None:
    (root / "file").write_text("x")
    (root / "file").chmod(0o444)
    root.chmod(0o777)
    with ordinary_user():
        assert "read-only" in failure_of(tools.WriteFile("file", "y"))
    assert (root / "file").read_text() == "x"


def test_a_directory_without_permissions_is_said_to_be_so(failure_of: Text, text_of: Text, root: Path) -> None:
    (root / "closed").mkdir(mode=0)
    root.chmod(0o755)
    with ordinary_user():
        assert "permissions" in failure_of(tools.ListDirectory("closed"))
        assert "permissions" in failure_of(tools.ReadFile("closed/x"))
        assert "Permission denied" in text_of(tools.DirectoryTree("."))
        assert text_of(tools.SearchFiles(".", "closed")) == f"{root}/closed"


@pytest.mark.parametrize("tool", [tools.ReadFile("fifo"), tools.WriteFile("fifo", "x"), tools.ReadFile("socket")])
@pytest.mark.timeout(60)
def test_a_fifo_or_socket_never_blocks(failure_of: Text, root: Path, tool: Tool) -> None:
    os.mkfifo(root / "fifo")
    os.mknod(root / "socket", stat.S_IFSOCK | 0o600)
    assert "not a regular file" in failure_of(tool)


def test_a_directory_is_made_with_those_above_and_again_without_harm(text_of: Text, root: Path) -> None:
    text_of(tools.CreateDirectory("a/b/c/"))
    text_of(tools.CreateDirectory("a/b/c"))
    assert (root / "a/b/c").is_dir()


def test_a_listing_has_kinds_in_order_of_names_and_one_line_an_entry(text_of: Text, root: Path) -> None:
    (root / "zoo").mkdir()
    (root / "apple").write_text("")
    (root / "two\nlines").write_text("")
    os.close(os.open(os.fsencode(root) + b"/caf\xe9", os.O_CREAT))
    (root / "link").symlink_to("zoo")
    assert text_of(tools.ListDirectory(".")).split("\n") == [
        "[FILE] apple",
        "[FILE] $'caf\\xe9'",
        "[FILE] link",
        "[FILE] $'two\\nlines'",
        "[DIR] zoo",
    ]


def test_moving_takes_files_directories_and_links_as_they_are(text_of: Text, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder/file").write_text("x")
    (root / "link").symlink_to("folder/file")
    text_of(tools.MoveFile("folder", "moved/"))
    text_of(tools.MoveFile("link", "moved/link"))
    assert (root / "moved/file").read_text() == "x"
    assert (root / "moved/link").readlink() == Path("folder/file")


def test_moving_never_replaces_what_exists(failure_of: Text, root: Path) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    assert "b: it exists already" in failure_of(tools.MoveFile("a", "b"))
    assert (root / "b").read_text() == "b"


def test_file_info_has_size_times_kind_and_permissions(run: Run, root: Path) -> None:
    (root / "file").write_text("12345")
    (root / "file").chmod(0o640)
    os.utime(root / "file", (1_000_000_000, 1_100_000_000))
    answer = run(tools.GetFileInfo("file"))
    assert answer.structured is not None
    facts = dict(answer.structured)
    assert facts.pop("created") > "2020"
    assert facts == {
        "size": 5,
        "modified": "2004-11-09T11:33:20.000+00:00",
        "accessed": "2001-09-09T01:46:40.000+00:00",
        "isDirectory": False,
        "isFile": True,
        "permissions": "640",
    }
    lines = answer.content[0]["text"].split("\n")
    assert "size: 5" in lines
    assert "isFile: true" in lines
    assert json.loads(json.dumps(answer.structured)) == answer.structured


def test_allowed_directories_are_the_root_and_the_granted_ones(text_of: Text, root: Path, granted: Path) -> None:
    assert text_of(tools.ListAllowedDirectories()) == f"Allowed directories:\n{root}\n{granted}"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_text_with_a_byte_order_mark_is_read_without_it_and_edited_in_its_encoding(
    text_of: Text, root: Path, mark: bytes, encoding: str
) -> None:
    (root / "text.csv").write_bytes(mark + "naïve\n".encode(encoding))
    assert text_of(tools.ReadFile("text.csv")) == "naïve\n"
    text_of(tools.EditFile("text.csv", [{"oldText": "naïve", "newText": "café"}]))
    assert (root / "text.csv").read_bytes() == mark + "café\n".encode(encoding)
