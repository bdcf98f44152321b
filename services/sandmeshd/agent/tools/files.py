"""The filesystem tools' handlers.

They run in the agent, which user code cannot touch, on files that user code can change at any moment. They block, so
the agent calls them on a thread; several may run in parallel.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from sandmesh._tools import Tool
from sandmesh._tools.filesystem import (
    CreateDirectory,
    DirectoryTree,
    EditFile,
    GetFileInfo,
    ListAllowedDirectories,
    ListDirectory,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    SearchFiles,
    WriteFile,
)
from sandmesh.shared.files.atomic_file import AtomicFile
from sandmeshd.agent.calls.answer import Answer, ToolFailure, text
from sandmeshd.agent.calls.threads import in_thread
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.messages import explained, show
from sandmeshd.agent.files.replacement import mode_of_replaceable
from sandmeshd.agent.files.syscalls import birth_time, rename_without_replacing
from sandmeshd.agent.files.trees.tree import MOST_IN_TREE, directory_tree, list_entries, search_files
from sandmeshd.agent.tools.edits import apply_edits, fenced, unified_diff

MOST_READ: Final = 32 * 1024 * 1024
_NOT_REPLACEABLE: Final = {
    errno.EISDIR: "it is a directory, not a file; nothing was written.",
    errno.ENXIO: "it is not a regular file but a FIFO, socket or device; nothing was written.",
    errno.EACCES: "it is read-only; run_shell_command can change that with chmod u+w.",
}

_MARKS: Final = {
    # Before those of UTF-16, with which they begin.
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""What text files of other systems begin with; it is not part of the text. A mark of UTF-8 is, as it was written."""


Function = Callable[[Workspace, Any], Answer]
HANDLERS: Final[dict[type[Tool], Function]] = {}
"""What carries out each tool of the files."""


def handles(tool: type[Tool]) -> Callable[[Function], Function]:
    """Make a function the handler of a tool.

    Raises:
        ValueError: The tool has one; the message names both.
    """

    def decorate(function: Function) -> Function:
        if tool in HANDLERS:
            first, second = (f"{one.__module__}.{one.__qualname__}" for one in (HANDLERS[tool], function))
            raise ValueError(f"the tool {tool.name} is handled twice, by {first} and {second}: remove one of them")
        HANDLERS[tool] = function
        return function

    return decorate


handles(DirectoryTree)(directory_tree)
handles(SearchFiles)(search_files)


@handles(ReadFile)
def read_file(workspace: Workspace, request: ReadFile) -> Answer:
    """Return a file's text."""
    return Answer([text(_read_text(workspace, request.path, MOST_READ))])


@handles(ReadMultipleFiles)
def read_multiple_files(workspace: Workspace, request: ReadMultipleFiles) -> Answer:
    """Return several files' texts, with a failure in the place of each that cannot be read."""
    blocks: list[str] = []
    left = MOST_READ
    for path in request.paths:
        try:
            content = _read_text(workspace, path, left)
        except ToolFailure as failure:
            blocks.append(f"{show(path)}: Error - {failure}\n")
        else:
            left -= len(content.encode())
            blocks.append(f"{show(path)}:\n{content}\n")
    return Answer([text("\n---\n".join(blocks))])


@handles(WriteFile)
def write_file(workspace: Workspace, request: WriteFile) -> Answer:
    """Write a file whole: readers see the old text or the new, never a part."""
    with explained(request.path), workspace.writing:
        _replace(workspace, request.path, request.content.encode())
    return Answer([text(f"Successfully wrote to {show(request.path)}")])


@handles(EditFile)
def edit_file(workspace: Workspace, request: EditFile) -> Answer:
    """Replace pieces of a file and give the diff."""
    with explained(request.path), workspace.writing:
        data = _read(workspace, request.path, MOST_READ)
        before = _decode(request.path, data)
        after = apply_edits(before, request.edits)
        if after != before and not request.dry_run:
            mark, encoding = _encoding(data)
            _replace(workspace, request.path, mark + after.encode(encoding))
    diff = unified_diff(before, after, show(request.path.lstrip("/")))
    return Answer([text(fenced(diff) if diff else "Nothing changes: the new text is the old.")])


@handles(CreateDirectory)
def create_directory(workspace: Workspace, request: CreateDirectory) -> Answer:
    """Make a directory with those above it."""
    with explained(request.path):
        os.close(workspace.make_directories(request.path))
    return Answer([text(f"Successfully created directory {show(request.path)}")])


@handles(ListDirectory)
def list_directory(workspace: Workspace, request: ListDirectory) -> Answer:
    """List a directory by name; links are listed as files."""
    with explained(request.path):
        fd = workspace.open_directory(request.path)
        try:
            entries = list_entries(fd, MOST_IN_TREE)
            lines = [f"{'[DIR]' if _is_directory(entry) else '[FILE]'} {show(entry.name)}" for entry in entries]
        finally:
            os.close(fd)
    if len(lines) > MOST_IN_TREE:
        raise ToolFailure(
            f"{show(request.path)}: there are more than {MOST_IN_TREE:,} entries in it; use search_files."
        )
    return Answer([text("\n".join(lines))])


@handles(MoveFile)
def move_file(workspace: Workspace, request: MoveFile) -> Answer:
    """Move a file, directory or link as it is; never over something that exists."""
    with (
        explained(request.source),
        workspace.parent(request.source) as source,
        explained(request.destination),
        workspace.parent(request.destination) as destination,
    ):
        _rename(request, source, destination)
    return Answer([text(f"Successfully moved {show(request.source)} to {show(request.destination)}")])


def _rename(request: MoveFile, source: tuple[int, str], destination: tuple[int, str]) -> None:
    with explained(f"{request.source} to {request.destination}"):
        try:
            rename_without_replacing(source, destination)
        except FileExistsError:
            raise ToolFailure(f"{show(request.destination)}: it exists already and is left as it is.") from None


@handles(GetFileInfo)
def get_file_info(workspace: Workspace, request: GetFileInfo) -> Answer:
    """Return a file's metadata; that of a link is its target's."""
    with explained(request.path):
        fd = workspace.open(request.path, os.O_PATH)
        try:
            found, born = os.fstat(fd), birth_time(fd)
        finally:
            os.close(fd)
    facts = {
        "size": found.st_size,
        "created": _time(min(found.st_mtime, found.st_ctime) if born is None else born),
        "modified": _time(found.st_mtime),
        "accessed": _time(found.st_atime),
        "isDirectory": stat.S_ISDIR(found.st_mode),
        "isFile": stat.S_ISREG(found.st_mode),
        "permissions": f"{stat.S_IMODE(found.st_mode):03o}",
    }
    lines = [f"{name}: {str(fact).lower() if isinstance(fact, bool) else fact}" for name, fact in facts.items()]
    return Answer([text("\n".join(lines))], facts)


@handles(ListAllowedDirectories)
def list_allowed_directories(workspace: Workspace, _: ListAllowedDirectories) -> Answer:
    """Return the directories that tools may access."""
    return Answer([text("\n".join(["Allowed directories:", *map(show, workspace.directories)]))])


class FileTools:
    """The tools on one workspace, which run in a thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {cls: in_thread(partial(function, self._workspace)) for cls, function in HANDLERS.items()}


def _read_text(workspace: Workspace, path: str, most: int) -> str:
    return _decode(path, _read(workspace, path, most))


def _read(workspace: Workspace, path: str, most: int) -> bytes:
    with explained(path), os.fdopen(workspace.open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(most + 1) if size <= most else b""
    if size > most or len(data) > most:
        raise ToolFailure(
            f"{show(path)}: it has {max(size, len(data)):,} bytes and {most:,} can be read here. Read a part of it "
            "with run_shell_command (head -c, tail -c, sed -n) or in Python."
        )
    return data


def _encoding(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark that data begin with, and the encoding that it stands for."""
    return next(((mark, encoding) for mark, encoding in _MARKS.items() if data.startswith(mark)), (b"", "utf-8"))


def _decode(path: str, data: bytes) -> str:
    mark, encoding = _encoding(data)
    try:
        return data[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolFailure(
            f"{show(path)}: it is not {encoding.upper()} text but binary ({len(data):,} bytes; byte "
            f"{len(mark) + error.start:,} is the first that does not fit). Read it with run_shell_command (base64, "
            "xxd, file) or in Python."
        ) from None


def _replace(workspace: Workspace, path: str, data: bytes) -> None:
    with workspace.destination(path) as (directory, name):
        mode = _mode_of_replaceable(directory, name, path)
        file = AtomicFile(directory, name)
        try:
            file.write(data)
            file.commit(replace=True, mode=mode)
        finally:
            file.close()


def _mode_of_replaceable(directory: int, name: str, path: str) -> int | None:
    try:
        return mode_of_replaceable(directory, name)
    except OSError as error:
        message = _NOT_REPLACEABLE.get(error.errno or 0)
        if message is None:
            raise
        raise ToolFailure(f"{show(path)}: {message}") from None


def _is_directory(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir(follow_symlinks=False)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
