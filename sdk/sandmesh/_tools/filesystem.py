"""Tools on the files of a sandbox's workspace.

Paths are relative to the workspace or absolute below it. A path that leads out of it, also by a symbolic link, is an
error.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from typing_extensions import TypedDict

from sandmesh._tools.declaration import Param, Tool, tool

Path = Annotated[str, Param("Relative to the workspace, or absolute below it.", min_length=1)]


class Edit(TypedDict):
    """One replacement: a text that occurs once, and the new text."""

    oldText: str
    newText: str


@tool("filesystem")
class ReadFile(Tool):
    """Read a file's whole text."""

    path: Path


@tool("filesystem")
class ReadMultipleFiles(Tool):
    """Read several files; one that cannot be read is reported in its place and the others still come."""

    paths: Annotated[list[str], Param("The files.", min_length=1)]


@tool("filesystem")
class WriteFile(Tool):
    """Write a whole file, replacing an existing one and creating its parent directories."""

    path: Path
    content: Annotated[str, Param("Its new text.")]


@tool("filesystem")
class EditFile(Tool):
    """Replace pieces of a file's text and return the change as a git-style diff."""

    path: Path
    edits: Annotated[list[Edit], Param("Replacements, done in this order.", min_length=1)]
    dry_run: Annotated[bool, Param("Only show the diff.")] = False


@tool("filesystem")
class CreateDirectory(Tool):
    """Create a directory and its parents; an existing one is left unchanged."""

    path: Path


@tool("filesystem")
class ListDirectory(Tool):
    """List a directory: one line per entry, with [DIR] or [FILE] before its name."""

    path: Path


@tool("filesystem")
class DirectoryTree(Tool):
    """Return the tree below a directory as JSON: objects of name, type and, for directories, children."""

    path: Path


@tool("filesystem")
class MoveFile(Tool):
    """Move or rename a file or directory; an existing destination is an error."""

    source: Path
    destination: Path


@tool("filesystem")
class SearchFiles(Tool):
    """Find files and directories below a path whose name contains a text or matches a pattern, ignoring case."""

    path: Path
    pattern: Annotated[str, Param("A part of the name, or a pattern with * and ?.", min_length=1)]
    exclude_patterns: Annotated[list[str], Param("Patterns of paths that are left out.")] = field(
        default_factory=list[str]
    )


@tool("filesystem")
class GetFileInfo(Tool):
    """Return a file's size, times, kind and permissions."""

    path: Path


@tool("filesystem")
class ListAllowedDirectories(Tool):
    """List the directories that these tools may access."""
