"""One typed declaration per tool, no behaviour."""

from sandmesh.tools.declare import TOOLS, Tool, build, description, dump, input_schema, parse
from sandmesh.tools.filesystem import (
    CreateDirectory,
    DirectoryTree,
    Edit,
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
from sandmesh.tools.generic import RunIpythonCell, RunShellCommand

__all__ = [
    "TOOLS",
    "CreateDirectory",
    "DirectoryTree",
    "Edit",
    "EditFile",
    "GetFileInfo",
    "ListAllowedDirectories",
    "ListDirectory",
    "MoveFile",
    "ReadFile",
    "ReadMultipleFiles",
    "RunIpythonCell",
    "RunShellCommand",
    "SearchFiles",
    "Tool",
    "WriteFile",
    "build",
    "description",
    "dump",
    "input_schema",
    "parse",
]
