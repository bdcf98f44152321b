"""Directories and changes through the whole mesh."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmesh.files import ChangeStream
from sandmeshd.mesh import Mesh


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as made:
        yield made


def tree(root: Path) -> dict[str, object]:
    """Give what is below a directory: content, mode, or where a link leads."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_dir():
            found[name] = path.stat().st_mode & 0o777
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime_ns // 10**6)
    return found


def make_tree(root: Path) -> Path:
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/data").write_bytes(os.urandom(1_500_000))
    (root / "a/b/script").write_text("echo hi\n")
    (root / "a/b/script").chmod(0o750)
    (root / "a/b/up").symlink_to("../down")
    (root / "a/down").symlink_to("b/data")
    (root / os.fsdecode(b"\xff\n" + b"n" * 120)).write_text("odd")
    (root / "top").write_text("")
    (root / "empty").mkdir(mode=0o700)
    return root


async def test_a_directory_comes_back_as_it_went(box: BaseSandboxAsync, tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source")
    await box.fs.upload_dir(source, "deep/copy")
    assert (await box.run_shell_command("sh deep/copy/a/b/script")).stdout == "hi\n"
    await box.fs.download_dir("deep/copy", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert [info.name for info in await box.fs.list("deep")] == ["copy"]
    assert len(await box.fs.list("deep/copy")) == 4


async def test_a_directory_goes_into_one_that_is_there(box: BaseSandboxAsync, tmp_path: Path) -> None:
    await box.fs.write_many({"kept": "kept", "a/kept": "kept", "top": "old"})
    await box.fs.upload_dir(make_tree(tmp_path / "source"))
    assert await box.fs.read("a/kept") == "kept"
    assert await box.fs.read("top") == ""
    assert not [info for info in await box.fs.list() if info.name.startswith(".sandmesh")]
    (tmp_path / "back/a").mkdir(parents=True)
    (tmp_path / "back/mine").write_text("mine")
    await box.fs.download_dir("a", tmp_path / "back/a")
    assert (tmp_path / "back/a/kept").read_text() == "kept"
    assert sorted(path.name for path in (tmp_path / "back").glob("*")) == ["a", "mine"]


async def test_links_are_copied_as_they_are_and_never_followed(box: BaseSandboxAsync, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    links = {"absolute": "/etc", "above": "../../../etc/passwd", "nowhere": "/no/such", "self": "."}
    for name, target in links.items():
        (source / name).symlink_to(target)
    await box.fs.upload_dir(source, "copy")
    shown = await box.run_shell_command("cd copy && readlink absolute above nowhere self")
    assert shown.stdout.split() == ["/etc", "../../../etc/passwd", "/no/such", "."]
    await box.fs.download_dir("copy", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    assert (tmp_path / "back/absolute").readlink() == Path("/etc")


async def test_a_link_in_the_place_of_a_directory_is_not_followed(box: BaseSandboxAsync, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here/d").symlink_to(outside)
    await box.run_shell_command("mkdir -p tree/d && echo 1 > tree/d/f")
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's
        await box.fs.download_dir("tree", tmp_path / "here")
    assert list(outside.iterdir()) == []


async def test_a_project_with_a_virtual_environment_comes_and_goes(box: BaseSandboxAsync, tmp_path: Path) -> None:
    await box.run_shell_command("mkdir p && echo result > p/result.txt && python3 -m venv --without-pip p/.venv")
    await box.fs.download_dir("p", tmp_path / "p")
    assert (tmp_path / "p/result.txt").read_text() == "result\n"
    assert (tmp_path / "p/.venv/bin/python3").is_symlink()
    await box.fs.upload_dir(tmp_path / "p", "q")
    assert (await box.run_shell_command("q/.venv/bin/python3 -c 'print(1)'")).stdout == "1\n"


async def test_what_patterns_match_is_left_out_both_ways(box: BaseSandboxAsync, tmp_path: Path) -> None:
    made = (
        "mkdir -p p/.venv/bin p/src/build && touch p/.venv/bin/x p/a.log p/keep.log p/src/a.log p/src/b p/src/build/c"
    )
    await box.run_shell_command(made)
    patterns = ["# not these", "", ".venv/", "*.log", "!keep.log", "/src/build"]
    await box.fs.download_dir("p", tmp_path / "p", exclude=patterns)
    assert sorted(tree(tmp_path / "p")) == ["keep.log", "src", "src/b"]
    await box.fs.upload_dir(tmp_path / "p", "q", exclude=["src"])
    assert [one.path for one in await box.fs.list("q", 2)] == ["keep.log"]


async def test_no_set_id_bit_of_a_sandbox_comes_here(box: BaseSandboxAsync, tmp_path: Path) -> None:
    await box.run_shell_command("mkdir s && touch s/f && chmod 6755 s/f")
    await box.fs.download_dir("s", tmp_path / "s")
    assert (tmp_path / "s/f").stat().st_mode & 0o7777 == 0o755


async def seen(changes: ChangeStream, last: tuple[str, str]) -> list[tuple[str, str]]:
    """Collect changes up to one."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(20):
        async for change in changes:
            found.append((change.kind, change.path))
            if found[-1] == last:
                break
    return found


async def test_changes_are_told(box: BaseSandboxAsync) -> None:
    await box.run_shell_command("mkdir -p d/e; touch d/e/f d/old")
    async with await box.fs.watch("d", recursive=True) as changes:
        await box.run_shell_command(
            "cd d; echo > new; mv old older; rm new; mkdir g; echo > g/h; rm e/f; rm -r g; touch end"
        )
        found = await seen(changes, ("created", "end"))
    for wanted in [
        ("created", "new"),
        ("modified", "new"),
        ("moved_out", "old"),
        ("moved_in", "older"),
        ("deleted", "new"),
        ("created", "g"),
        ("created", "g/h"),
        ("deleted", "e/f"),
        ("deleted", "g"),
    ]:
        assert wanted in found, (wanted, found)


async def test_a_watch_ends_when_its_path_vanishes(box: BaseSandboxAsync) -> None:
    await box.fs.mkdir("d")
    async with await box.fs.watch("d") as changes:
        await box.fs.remove("d")
        kinds = [change.kind async for change in changes]
    assert kinds[-1] == "gone"
    with pytest.raises(FileNotFoundError):
        await box.fs.watch("d")
