"""Removing what user code left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandmeshd.runtime.user_namespaces.removal import remove_tree

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
