"""What an agent changed in its copy of a folder, shown as git shows it, and applied to the folder."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import WrongState
from sandmeshd.cli.coding_agents.work_tree import TreeEntry, entry_at, has_linked_parent

_LARGEST: Final = 1 << 20
"""Bytes of the largest file whose lines are shown."""


@dataclass(frozen=True)
class FileEdit:
    """A path that differs from how the agent found it; None is a path that was not, or is no longer, there."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


@dataclass(frozen=True)
class Applied:
    """What was applied, and what was left out."""

    paths: tuple[str, ...]
    links_left_out: tuple[str, ...]


def compare(before: Mapping[str, TreeEntry], after: Mapping[str, TreeEntry]) -> list[FileEdit]:
    """Return what differs, by path."""
    paths = sorted(before.keys() | after.keys())
    return [FileEdit(path, before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)]


def conflicts(root: Path, changes: list[FileEdit]) -> list[str]:
    """Return the paths of changes that the folder has in neither state: they were changed here meanwhile."""
    gone = {change.path for change in changes if change.after is None}
    found = (change for change in changes if entry_at(root, change.path) not in (change.before, change.after))
    return [one.path for one in found if one.before is not None or not _goes_with(root, one.path, gone)]


def _goes_with(root: Path, path: str, gone: set[str]) -> bool:
    """Return whether a path is a folder of which nothing is left once some files are gone."""
    folder = root / path
    if has_linked_parent(root, path) or folder.is_symlink() or not folder.is_dir():
        return False
    inner = (
        inside
        for inside in folder.rglob("*")
        if inside.is_symlink() or not inside.is_dir() or not any(inside.iterdir())
    )
    files = {str(one.relative_to(root)) for one in inner}
    return bool(files) and files <= gone


def patch(root: Path, result: Path, changes: list[FileEdit]) -> Iterator[str]:
    """Yield the lines of a patch as git writes one; of what was changed here meanwhile only the names."""
    for change in changes:
        yield f"diff --git a/{change.path} b/{change.path}"
        if entry_at(root, change.path) not in (change.before, change.after):
            yield "# changed in the folder, too: a conflict"
            continue
        yield from _modes(change)
        here = entry_at(root, change.path) == change.before
        # What was applied already is only in its new state.
        old = _lines(root / change.path, change.before) if here else _lines(result / change.path, change.after)
        new = _lines(result / change.path, change.after)
        if old is None or new is None:
            yield f"Binary files a/{change.path} and b/{change.path} differ"
            continue
        old_name = f"a/{change.path}" if change.before else "/dev/null"
        new_name = f"b/{change.path}" if change.after else "/dev/null"
        for line in difflib.unified_diff(old, new, old_name, new_name):
            yield line.removesuffix("\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


def _modes(change: FileEdit) -> Iterator[str]:
    before, after = _mode(change.before), _mode(change.after)
    if before is None:
        yield f"new file mode {after}"
    elif after is None:
        yield f"deleted file mode {before}"
    elif before != after:
        yield f"old mode {before}"
        yield f"new mode {after}"


def _mode(entry: TreeEntry | None) -> str | None:
    if entry is None:
        return None
    return "120000" if entry.kind == "link" else "100755" if entry.executable else "100644"


def _lines(path: Path, entry: TreeEntry | None) -> list[str] | None:
    """Return the lines of a file or the target of a link; None where it is not text."""
    if entry is None:
        return []
    if entry.kind == "link":
        return [entry.value]
    if path.stat().st_size > _LARGEST:
        return None
    data = path.read_bytes()
    try:
        *lines, last = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    return None if b"\0" in data else [*(f"{line}\n" for line in lines), *([last] if last else [])]


def apply(root: Path, result: Path, changes: list[FileEdit]) -> Applied:
    """Apply changes to a folder, all or none of them; links that lead outside are left out.

    Raises:
        WrongState: Some of the paths were changed here meanwhile.
        OSError: One cannot be written.
    """
    if found := conflicts(root, changes):
        listed = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        fix = "undo one side of each, or take what you want from the patch that `sandmesh agent diff` prints"
        raise WrongState(
            f"nothing is applied, since these were changed in the folder, too: {listed}: {fix}", {"fix": fix}
        )
    outside = tuple(one.path for one in changes if one.after is not None and _leads_outside(one.path, one.after))
    wanted = [entry for entry in changes if entry.path not in outside]
    with tempfile.TemporaryDirectory(prefix=".sandmesh-", dir=root) as folder:
        _replace_all(root, result, wanted, Path(folder))
    return Applied(tuple(one.path for one in wanted), outside)


def _replace_all(root: Path, result: Path, wanted: list[FileEdit], scratch: Path) -> None:
    """Write new files beside the folder's, then exchange them; what fails leaves the folder's as they were."""
    fresh, old = scratch / "fresh", scratch / "old"
    fresh.mkdir()
    old.mkdir()
    writes = [edit for edit in wanted if edit.after is not None and entry_at(root, edit.path) != edit.after]
    for number, change in enumerate(writes):
        _write(root, result, change, fresh / str(number))
    moved: list[tuple[Path, Path | None]] = []
    made: list[Path] = []
    try:
        written = {edit.path for edit in writes}
        for number, change in enumerate(edit for edit in wanted if edit.path in written or edit.after is None):
            target, kept = root / change.path, old / str(number)
            if os.path.lexists(target):
                target.rename(kept)
                moved.append((target, kept))
        for number, change in enumerate(writes):
            target = root / change.path
            made += _make_parents(target)
            (fresh / str(number)).rename(target)
            moved.append((target, None))
    except OSError:
        _undo(moved, made)
        raise
    for change in wanted:
        if change.after is None:
            _remove_empty(root, change.path)


def _undo(moved: list[tuple[Path, Path | None]], made: list[Path]) -> None:
    for target, kept in reversed(moved):
        if kept is None:
            target.unlink()
    for folder in reversed(made):
        folder.rmdir()
    for target, kept in reversed(moved):
        if kept is not None:
            kept.rename(target)


def _make_parents(target: Path) -> list[Path]:
    """Make the folders above a path; return those that were not there, outermost first."""
    absent = [parent for parent in target.parents if not os.path.lexists(parent)][::-1]
    target.parent.mkdir(parents=True, exist_ok=True)
    return absent


def _leads_outside(path: str, entry: TreeEntry) -> bool:
    if entry.kind != "link":
        return False
    return os.path.normpath(Path(path).parent / entry.value).startswith(("..", "/"))


def _remove_empty(root: Path, path: str) -> None:
    """Remove the folders above a path that have nothing else."""
    for parent in Path(path).parents[:-1]:
        try:
            (root / parent).rmdir()
        except OSError:  # it has other files
            return


def _write(root: Path, result: Path, change: FileEdit, fresh: Path) -> None:
    target, entry = root / change.path, change.after
    if entry is None:
        return
    if entry.kind == "link":
        fresh.symlink_to(entry.value)
    else:
        shutil.copyfile(result / change.path, fresh, follow_symlinks=False)
        fresh.chmod(_permissions(target, executable=entry.executable))


def _permissions(target: Path, *, executable: bool) -> int:
    """Return the permissions of a file: those it has, with or without that of execution."""
    present = target.is_file() and not target.is_symlink()
    mode = target.stat().st_mode & 0o777 if present else 0o666 & ~_umask()
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
