"""Patches of directory trees: random trees become each other, failures undo all, and bad input changes nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from sandmeshd.agent.files.trees.patches import packed, received
from sandmeshd.agent.files.trees.tree_states import EntryState, differences, scan

FACTS = tuple[str, int, int, str]


@contextmanager
def opened(path: Path) -> Generator[int]:
    """Open a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def state(path: Path) -> dict[str, FACTS]:
    """Return the state of a tree."""
    with opened(path) as fd:
        return {name: entry.facts for name, entry in scan(fd).items()}


def patch_of(before: Path, after: Path) -> bytes:
    """Return the patch from one tree to another."""
    with opened(before) as old, opened(after) as new:
        return b"".join(packed(new, differences(scan(old), scan(new))))


def apply(path: Path, patch: bytes) -> list[str]:
    """Apply a patch, unless there are conflicts; return them."""
    with opened(path) as fd, received(fd, io.BytesIO(patch)) as found:
        conflicts = found.conflicts()
        if not conflicts:
            found.apply()
        return conflicts


def grow(path: Path, random: Random, levels: int = 3) -> None:
    """Fill a directory with random entries."""
    for name in random.sample("abcdef", random.randrange(5)):
        place = path / name
        kind = random.randrange(4)
        if kind == 0 and levels:
            place.mkdir()
            grow(place, random, levels - 1)
            place.chmod(random.choice((0o755, 0o500, 0o700, 0o000)))
        elif kind == 1:
            place.symlink_to(random.choice("xyz"))
        else:
            place.write_bytes(random.randbytes(random.choice((0, 1, 5000))))
            place.chmod(random.choice((0o644, 0o755, 0o000)))


@pytest.mark.parametrize("seed", range(60))
def test_a_patch_makes_of_one_tree_the_other_and_leaves_nothing_beside_it(tmp_path: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a test that can be repeated
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        grow(tmp_path / name, random)
    patch = patch_of(tmp_path / "one", tmp_path / "other")
    assert apply(tmp_path / "one", patch) == []
    assert state(tmp_path / "one") == state(tmp_path / "other")
    assert not [name for name in os.listdir(tmp_path / "one") if name.startswith(".sandmesh-")]  # noqa: PTH208


def test_a_failure_undoes_the_changes_before_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        (place / "kept" / "deep").mkdir(parents=True)
        (place / "kept" / "deep" / "file").write_text("kept")
        (place / "gone").mkdir(mode=0o500)
        (place / "zed").write_text("before")
    (other / "added").mkdir()
    (other / "kept").chmod(0o700)
    (other / "gone").rmdir()
    (other / "kept" / "deep" / "file").write_text("changed")
    (other / "zed").write_text("after")
    patch, before = patch_of(one, other), state(one)
    with opened(one) as fd, received(fd, io.BytesIO(patch)) as found:
        staged = next(path for path in one.iterdir() if path.name.startswith(".sandmesh-")) / "staged"
        (staged / "zed").unlink()
        with pytest.raises(FileNotFoundError):
            found.apply()
    assert state(one) == before


def test_what_is_not_a_patch_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    good = patch_of(tmp_path / "one", tmp_path / "other")
    entry = list(EntryState("file", 0o644, 1, "0" * 32).facts)

    def with_changes(changes: object) -> bytes:
        written = json.dumps(changes).encode()
        (length,) = struct.unpack_from(">Q", good)
        return struct.pack(">Q", len(written)) + written + good[8 + length :]

    bad = [
        b"",
        good[:4],
        good[:20],
        good[:-1500],
        b"\xff" * 8 + good[8:],
        with_changes({}),
        with_changes([["file", None]]),
        with_changes([["file", None, ["fifo", 0, 0, ""]]]),
        with_changes([["file", None, entry]]),
        *(with_changes([[path, None, entry]]) for path in ("../x", "/x", "", "a//b", "a/./b", "a\0", "\ud800", 7)),
        with_changes([[".sandmesh-0123456789abcdef", entry, None]]),
    ]
    for patch in bad:
        with pytest.raises(OSError, match=r"patch|tar"):
            apply(tmp_path / "one", patch)
        assert not list((tmp_path / "one").iterdir())
    assert apply(tmp_path / "one", good) == []


def test_a_link_on_the_way_is_a_conflict_and_never_followed(tmp_path: Path) -> None:
    one, other, outside = tmp_path / "one", tmp_path / "other", tmp_path / "outside"
    for place in (one, other, outside):
        place.mkdir()
        (place / "folder").mkdir()
        (place / "folder" / "file").write_text("before")
    (other / "folder" / "file").write_text("after")
    patch = patch_of(one, other)
    shutil.rmtree(one / "folder")
    (one / "folder").symlink_to(outside / "folder")
    assert apply(one, patch) == ["folder/file"]
    with opened(one) as fd, received(fd, io.BytesIO(patch)) as found, pytest.raises(NotADirectoryError):
        found.apply()
    assert (outside / "folder" / "file").read_text() == "before"
