"""Tools on the files of a sandbox's workspace.

Paths are relative to the workspace or absolute below it. Whatever leads out of it, a symbolic link too, is an error.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from sandmesh._tools.declaration import Tool, tool

Path = Annotated[str, Field(min_length=1, description="Relative to the workspace, or absolute below it.")]


class Edit(TypedDict):
    """One replacement: the text as it stands, once, and what is to stand there."""

    oldText: str
    newText: str


@tool("filesystem")
class ReadFile(Tool):
    """Read a file's whole text."""

    path: Path


@tool("filesystem")
class ReadMultipleFiles(Tool):
    """Read several files; one that cannot be read is reported in its place and the others still come."""

    paths: Annotated[list[str], Field(min_length=1, description="The files.")]


@tool("filesystem")
class WriteFile(Tool):
    """Write a file whole, replacing what was there, with the directories above it made."""

    path: Path
    content: Annotated[str, Field(description="Its new text.")]


@tool("filesystem")
class EditFile(Tool):
    """Replace pieces of a file's text and return the change as a git-style diff."""

    path: Path
    edits: Annotated[list[Edit], Field(min_length=1, description="Replacements, done in this order.")]
    dry_run: Annotated[bool, Field(description="Only show the diff.")] = False


@tool("filesystem")
class CreateDirectory(Tool):
    """Make a directory with those above it; one that exists is left as it is."""

    path: Path


@tool("filesystem")
class ListDirectory(Tool):
    """List a directory: one line an entry, [DIR] or [FILE] before its name."""

    path: Path


@tool("filesystem")
class DirectoryTree(Tool):
    """Give all below a directory as JSON: objects of name, type and, for directories, children."""

    path: Path


@tool("filesystem")
class MoveFile(Tool):
    """Move or rename a file or directory; an existing destination is an error."""

    source: Path
    destination: Path


@tool("filesystem")
class SearchFiles(Tool):
    """Find files and directories below a path whose name has a text in it or fits a pattern, whatever its case."""

    path: Path
    pattern: Annotated[str, Field(min_length=1, description="A part of the name, or a pattern with * and ?.")]
    exclude_patterns: Annotated[list[str], Field(description="Patterns of paths that are left out.")] = Field(
        default_factory=list
    )


@tool("filesystem")
class GetFileInfo(Tool):
    """Give a file's size, times, kind and permissions."""

    path: Path


@tool("filesystem")
class ListAllowedDirectories(Tool):
    """Give the directories that these tools may reach."""
