"""Declarations of the tools, shared by the SDK, the agent and the MCP adapter."""

from __future__ import annotations

from sandmesh._tools.declaration import PLUMBING, TOOLS, Tool, build, description, dump, input_schema, parse
from sandmesh._tools.filesystem import (
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
from sandmesh._tools.forms import ToolSchema
from sandmesh._tools.generic import RunIpythonCell, RunShellCommand
from sandmesh._tools.git import CommitChanges, GenerateDiff, GitLogs
from sandmesh._tools.kernels import CreateKernel, DeleteKernel, InterruptKernel, ListKernels, RestartKernel, RunCell
from sandmesh._tools.mcp import AddMcpServers, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh._tools.processes import ListProcesses, StartProcess, TerminalSize, WaitForPort

__all__ = [
    "PLUMBING",
    "TOOLS",
    "AddMcpServers",
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
    "ListMcpServers",
    "ListProcesses",
    "MoveFile",
    "ReadFile",
    "ReadMultipleFiles",
    "RemoveMcpServer",
    "RestartKernel",
    "RunCell",
    "RunIpythonCell",
    "RunShellCommand",
    "SearchFiles",
    "StartProcess",
    "TerminalSize",
    "Tool",
    "ToolSchema",
    "WaitForPort",
    "WatchTools",
    "WriteFile",
    "build",
    "description",
    "dump",
    "input_schema",
    "parse",
]
