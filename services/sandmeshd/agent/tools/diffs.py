"""Reads diffs as git writes them without renames."""

from __future__ import annotations

from typing import Final

_HEADER: Final = "diff --git "


def split_diff(shown: str) -> dict[str, str]:
    """Return each file's part of a diff by its path; a path that git quotes stays quoted.

    Nothing inside a part begins as a header does: each line of a file is preceded by a sign or a space.
    """
    parts: dict[str, str] = {}
    for part in f"\n{shown}".split(f"\n{_HEADER}")[1:]:
        path = _path(part.split("\n", 1)[0])
        # A file that became a link has two parts.
        parts[path] = parts.get(path, "") + f"{_HEADER}{part.rstrip(chr(10))}\n"
    return parts


def _path(names: str) -> str:
    # Both sides name the same file: "a/x b/x", or both in quotes.
    side = names[: (len(names) - 1) // 2]
    return f'"{side[3:]}' if side.startswith('"') else side[2:]
