"""Removing what user code left."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandmeshd.drivers.node import records
from sandmeshd.drivers.node.process_driver import MOST_LEFT, Removals
from sandmeshd.drivers.node.records import Folder
from sandmeshd.runtime.user_namespaces.removal import removal_steps, remove_tree

DEPTH = 3000


def _deep(root: Path) -> None:
    folder = os.open(root, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


def test_a_tree_deeper_than_paths_and_stacks_is_removed(folder: Path) -> None:
    root = folder / "tree"
    root.mkdir()
    _deep(root)
    remove_tree(root)
    assert not root.exists()


def test_directories_closed_to_their_owner_are_removed(folder: Path) -> None:
    root = folder / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    for path in (root / "a" / "b", root / "a", root):
        path.chmod(0)
    remove_tree(root)
    assert not root.exists()


def test_a_tree_that_two_remove_at_once_is_removed(folder: Path) -> None:
    root = folder / "tree"
    for number in range(200):
        (root / f"{number}" / "a").mkdir(parents=True)
        (root / f"{number}" / "a" / "file").touch()
    first = removal_steps(root)
    next(first)
    with ThreadPoolExecutor() as threads:
        second = threads.submit(remove_tree, root)
        for _ in first:
            assert not second.done()
        second.result(timeout=60)
    assert not root.exists()


def test_what_links_name_is_left_alone(folder: Path) -> None:
    kept, root = folder / "kept", folder / "tree"
    for path in (kept, root):
        path.mkdir()
    (kept / "file").write_text("mine")
    (root / "link").symlink_to(kept)
    (root / "file").symlink_to(kept / "file")
    (root / "dead").symlink_to("/nowhere")
    remove_tree(root)
    assert not root.exists()
    assert (kept / "file").read_text() == "mine"


def test_a_link_in_the_place_of_the_tree_is_not_followed(folder: Path) -> None:
    kept = folder / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (folder / "tree").symlink_to(kept)
    with pytest.raises(OSError, match="tree"):
        remove_tree(folder / "tree")
    assert (kept / "file").exists()


def test_pipes_sockets_and_odd_names_are_removed(folder: Path) -> None:
    root = folder / "tree"
    root.mkdir()
    os.mkfifo(root / "pipe")
    os.close(os.open(os.fsencode(root) + b"/\xff\n name", os.O_CREAT))
    remove_tree(root)
    assert not root.exists()


def test_a_tree_that_is_not_there_is_fine(folder: Path) -> None:
    remove_tree(folder / "nothing")


def _sandbox(folder: Path, name: str, files: int) -> Folder:
    made = Folder(name, folder / name, folder / f"sockets-{name}")
    (made.root / "workspace").mkdir(parents=True)
    made.sockets.mkdir()
    for number in range(files):
        os.close(os.open(made.root / "workspace" / f"{number}", os.O_CREAT))
    return made


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _left(folder: Path) -> int:
    return sum(len(files) for place in folder.glob(".gone-*") for _, _, files in os.walk(place))


async def test_the_delete_of_many_files_waits_for_a_bounded_number_of_them(folder: Path) -> None:
    removals, large, small = Removals(), _sandbox(folder, "large", 10_000), _sandbox(folder, "small", 100)
    await removals.remove(small)
    assert _names(folder) == ["large", "sockets-large"]
    await removals.remove(large)
    # Its name may be used again, whatever is left.
    assert not large.root.exists()
    assert not large.sockets.exists()
    await removals.remove(_sandbox(folder, "large", 1))
    await removals.close()
    assert _names(folder) == []


async def test_at_most_so_many_trees_are_left_and_the_next_delete_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_AWAITED", 3)
    removals, held = Removals(), threading.Event()
    for _ in range(2):
        removals.threads.submit(held.wait)  # all of its threads wait, as for a slow disk
    for number in range(MOST_LEFT - 1):
        await removals.remove(_sandbox(folder, f"{number}", 10))
    # An entry is the folder of the workspace: two files of each are gone.
    assert _left(folder) == (MOST_LEFT - 1) * 8
    waits = asyncio.create_task(removals.remove(_sandbox(folder, "last", 10)))
    done, _ = await asyncio.wait([waits], timeout=0.2)
    assert not done
    held.set()
    await waits
    await removals.close()
    assert _names(folder) == []
