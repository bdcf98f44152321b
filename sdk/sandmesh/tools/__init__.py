"""Tools: a typed declaration of each, without behaviour, and each as a function that can be called.

    from sandmesh.tools import run_ipython_cell

    print(run_ipython_cell(code="1 + 1").text)

The functions are loaded when they are first used: agents, which have no SDK, import the declarations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
from sandmesh.tools.forms import ToolSchema
from sandmesh.tools.generic import RunIpythonCell, RunShellCommand
from sandmesh.tools.git import CommitChanges, GenerateDiff, GitLogs
from sandmesh.tools.kernels import CreateKernel, DeleteKernel, InterruptKernel, ListKernels, RestartKernel, RunCell
from sandmesh.tools.mcp import AddMcpServers, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh.tools.processes import ListProcesses, StartProcess, TerminalSize, WaitForPort

if TYPE_CHECKING:
    from sandmesh.functions import (
        SandboxTool,
        ToolFunction,
        commit_changes,
        create_directory,
        directory_tree,
        edit_file,
        generate_diff,
        get_file_info,
        git_logs,
        list_allowed_directories,
        list_directory,
        move_file,
        read_file,
        read_multiple_files,
        run_ipython_cell,
        run_shell_command,
        search_files,
        write_file,
    )
    from sandmesh.mcp_tools import MCPConfigConverter, McpTool
    from sandmesh.own_functions import FunctionTool, function_tool

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
    "FunctionTool",
    "GenerateDiff",
    "GetFileInfo",
    "GitLogs",
    "InterruptKernel",
    "ListAllowedDirectories",
    "ListDirectory",
    "ListKernels",
    "ListMcpServers",
    "ListProcesses",
    "MCPConfigConverter",
    "McpTool",
    "MoveFile",
    "ReadFile",
    "ReadMultipleFiles",
    "RemoveMcpServer",
    "RestartKernel",
    "RunCell",
    "RunIpythonCell",
    "RunShellCommand",
    "SandboxTool",
    "SearchFiles",
    "StartProcess",
    "TerminalSize",
    "Tool",
    "ToolFunction",
    "ToolSchema",
    "WaitForPort",
    "WatchTools",
    "WriteFile",
    "build",
    "commit_changes",
    "create_directory",
    "description",
    "directory_tree",
    "dump",
    "edit_file",
    "function_tool",
    "generate_diff",
    "get_file_info",
    "git_logs",
    "input_schema",
    "list_allowed_directories",
    "list_directory",
    "move_file",
    "parse",
    "read_file",
    "read_multiple_files",
    "run_ipython_cell",
    "run_shell_command",
    "search_files",
    "write_file",
]

_OTHERS = {
    "FunctionTool": "own_functions",
    "function_tool": "own_functions",
    "MCPConfigConverter": "mcp_tools",
    "McpTool": "mcp_tools",
}
_FUNCTIONS = frozenset(
    {
        "SandboxTool",
        "ToolFunction",
        "commit_changes",
        "create_directory",
        "directory_tree",
        "edit_file",
        "generate_diff",
        "get_file_info",
        "git_logs",
        "list_allowed_directories",
        "list_directory",
        "move_file",
        "read_file",
        "read_multiple_files",
        "run_ipython_cell",
        "run_shell_command",
        "search_files",
        "write_file",
    }
)


def __getattr__(name: str) -> object:
    """Load a function, or what makes them, from where it is."""
    if name not in _FUNCTIONS and name not in _OTHERS:
        raise AttributeError(f"module 'sandmesh.tools' has no attribute {name!r}")
    found: object = getattr(import_module(f"sandmesh.{_OTHERS.get(name, 'functions')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
