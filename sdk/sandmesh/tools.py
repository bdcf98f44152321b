"""Tools: a typed declaration of each, without behaviour, and each as a function that can be called.

    from sandmesh.tools import run_ipython_cell

    print(run_ipython_cell(code="1 + 1").text)

The functions are loaded when they are first used: agents, which have no SDK, import the declarations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sandmesh._tools import (
    PLUMBING,
    TOOLS,
    AddMcpServers,
    CommitChanges,
    CreateDirectory,
    CreateKernel,
    DeleteKernel,
    DirectoryTree,
    Edit,
    EditFile,
    GenerateDiff,
    GetFileInfo,
    GitLogs,
    InterruptKernel,
    ListAllowedDirectories,
    ListDirectory,
    ListKernels,
    ListMcpServers,
    ListProcesses,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    RemoveMcpServer,
    RestartKernel,
    RunCell,
    RunIpythonCell,
    RunShellCommand,
    SearchFiles,
    StartProcess,
    TerminalSize,
    Tool,
    ToolSchema,
    WaitForPort,
    WatchTools,
    WriteFile,
    build,
    description,
    dump,
    input_schema,
    parse,
)

if TYPE_CHECKING:
    from sandmesh.toolkits.functions import (
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
    from sandmesh.toolkits.local_functions import FunctionTool, function_tool
    from sandmesh.toolkits.mcp_tools import MCPConfigConverter, McpTool

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
    "FunctionTool": "local_functions",
    "function_tool": "local_functions",
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
    found: object = getattr(import_module(f"sandmesh.toolkits.{_OTHERS.get(name, 'functions')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
