"""One typed declaration per tool, no behaviour."""

from sandmesh.tools.declare import PLUMBING, TOOLS, Tool, build, description, dump, input_schema, parse
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
from sandmesh.tools.git import CommitChanges, GenerateDiff, GitLogs
from sandmesh.tools.kernels import CreateKernel, DeleteKernel, InterruptKernel, ListKernels, RestartKernel, RunCell
from sandmesh.tools.processes import ListProcesses, StartProcess, TerminalSize, WaitForPort

__all__ = [
    "PLUMBING",
    "TOOLS",
    "CommitChanges",
    "CreateDirectory",
    "CreateKernel",
    "DeleteKernel",
    "DirectoryTree",
    "Edit",
    "EditFile",
    "GenerateDiff",
    "GetFileInfo",
    "GitLogs",
    "InterruptKernel",
    "ListAllowedDirectories",
    "ListDirectory",
    "ListKernels",
    "ListProcesses",
    "MoveFile",
    "ReadFile",
    "ReadMultipleFiles",
    "RestartKernel",
    "RunCell",
    "RunIpythonCell",
    "RunShellCommand",
    "SearchFiles",
    "StartProcess",
    "TerminalSize",
    "Tool",
    "WaitForPort",
    "WriteFile",
    "build",
    "description",
    "dump",
    "input_schema",
    "parse",
]
