"""Walking the workspace: directory_tree and search_files.

A walk goes from descriptor to descriptor and never through a symbolic link, so nothing that is swapped meanwhile leads
out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

from sandmesh._tools.filesystem import DirectoryTree, SearchFiles
from sandmeshd.agent.calls.answer import Answer, ToolFailure, text
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.globs import Pattern
from sandmeshd.agent.files.messages import explained, show

MOST_IN_TREE: Final = 50_000
MOST_SEARCHED: Final = 1_000_000
MOST_FOUND: Final = 10_000
# Each level is an object in an array, and several languages' JSON readers stop at 128 of them.
DEEPEST_TREE: Final = 60
# Each level holds a descriptor open.
DEEPEST_SEARCH: Final = 200

_CHILD: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Bounds:
    """How much a walk may still list."""

    def __init__(self, path: str, entries: int, levels: int) -> None:
        self._path = path
        self._entries = self._left = entries
        self._levels = levels

    def list(self, fd: int, depth: int) -> list[os.DirEntry[str]]:
        """List a directory by name.

        Raises:
            ToolFailure: It is too deep, or has more than is left.
        """
        if depth > self._levels:
            raise self._passed(f"{self._levels} levels")
        found = list_entries(fd, self._left)
        self._left -= len(found)
        if self._left < 0:
            raise self._passed(f"{self._entries:,} entries")
        return found

    def _passed(self, what: str) -> ToolFailure:
        return ToolFailure(
            f"{show(self._path)}: there are more than {what} below it. Take one further down, or list_directory."
        )


def list_entries(fd: int, most: int) -> list[os.DirEntry[str]]:
    """List a directory by name; one with more than `most` entries is read up to one more."""
    found: list[os.DirEntry[str]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            found.append(entry)
            if len(found) > most:
                break
    return sorted(found, key=lambda entry: entry.name)


def directory_tree(workspace: Workspace, request: DirectoryTree) -> Answer:
    """Return everything below a directory as JSON; links are listed as files and not followed."""
    with explained(request.path):
        fd = workspace.open_directory(request.path)
        entries = _read_tree(fd, 0, _Bounds(request.path, MOST_IN_TREE, DEEPEST_TREE))
    return Answer([text(json.dumps(entries, indent=2, ensure_ascii=False))], {"entries": entries})


def _read_tree(fd: int, depth: int, bounds: _Bounds) -> list[dict[str, Any]]:
    """Read a directory and all below it, and close it."""
    try:
        return [_tree_entry(fd, entry, depth, bounds) for entry in bounds.list(fd, depth)]
    finally:
        os.close(fd)


def _tree_entry(fd: int, entry: os.DirEntry[str], depth: int, bounds: _Bounds) -> dict[str, Any]:
    name = _json_name(entry.name)
    if not entry.is_dir(follow_symlinks=False):
        return {"name": name, "type": "file"}
    try:
        child = os.open(entry.name, _CHILD, dir_fd=fd)
    except OSError as error:
        return {"name": name, "type": "directory", "children": [], "error": error.strerror}
    return {"name": name, "type": "directory", "children": _read_tree(child, depth + 1, bounds)}


def _json_name(name: str) -> str:
    """Return a name for a JSON string: as it is, or as `show` writes it where it is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return show(name)
    return name


def search_files(workspace: Workspace, request: SearchFiles) -> Answer:
    """Return the paths that match, one a line, by directory and name; links are found but not followed."""
    pattern, excluded = Pattern(request.pattern), [Pattern(each) for each in request.exclude_patterns]
    base = workspace.absolute(request.path).rstrip("/")
    bounds = _Bounds(request.path, MOST_SEARCHED, DEEPEST_SEARCH)
    found: list[str] = []
    with explained(request.path):
        for names in _walk(workspace.open_directory(request.path), (), excluded, bounds):
            if pattern.finds(names):
                found.append(show("/".join((base, *names))))
            if len(found) > MOST_FOUND:
                raise ToolFailure(f"More than {MOST_FOUND:,} names fit; search further down, or exclude more.")
    return Answer([text("\n".join(found) or "No matches found.")])


def _walk(fd: int, above: tuple[str, ...], excluded: list[Pattern], bounds: _Bounds) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to every entry below a directory, parents first, and close it."""
    try:
        for entry in bounds.list(fd, len(above)):
            names = (*above, entry.name)
            if any(each.excludes(names) for each in excluded):
                continue
            yield names
            child = _open_child(fd, entry)
            if child is not None:
                yield from _walk(child, names, excluded, bounds)
    finally:
        os.close(fd)


def _open_child(fd: int, entry: os.DirEntry[str]) -> int | None:
    """Open a directory; None for what is none, is gone meanwhile or may not be read."""
    if not entry.is_dir(follow_symlinks=False):
        return None
    try:
        return os.open(entry.name, _CHILD, dir_fd=fd)
    except OSError:
        return None
