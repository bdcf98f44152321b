"""Tools: a typed declaration of each, and each as a function.

    from sandmesh.tools import run_ipython_cell

    print(run_ipython_cell(code="1 + 1").text)

The functions are loaded at their first use: agents, which have no SDK, import the declarations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sandmesh._tools import (
    PLUMBING,
    TOOLS,
    AddMcpServers,
    CommitChanges,
    ConnectMcp,
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
    from sandmesh.toolkits.functions import DeclaredTool, SandboxTool, ToolFunction
    from sandmesh.toolkits.local_functions import FunctionTool, function_tool
    from sandmesh.toolkits.mcp_tools import MCPConfigConverter, McpTool

    commit_changes: DeclaredTool
    create_directory: DeclaredTool
    directory_tree: DeclaredTool
    edit_file: DeclaredTool
    generate_diff: DeclaredTool
    get_file_info: DeclaredTool
    git_logs: DeclaredTool
    list_allowed_directories: DeclaredTool
    list_directory: DeclaredTool
    move_file: DeclaredTool
    read_file: DeclaredTool
    read_multiple_files: DeclaredTool
    run_ipython_cell: DeclaredTool
    run_shell_command: DeclaredTool
    search_files: DeclaredTool
    write_file: DeclaredTool

__all__ = [
    "PLUMBING",
    "TOOLS",
    "AddMcpServers",
    "CommitChanges",
    "ConnectMcp",
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

_FACTORIES = {
    "FunctionTool": "local_functions",
    "function_tool": "local_functions",
    "MCPConfigConverter": "mcp_tools",
    "McpTool": "mcp_tools",
    "SandboxTool": "functions",
    "ToolFunction": "functions",
}


def __getattr__(name: str) -> object:
    """Load a function, or a class that makes them, at its first use."""
    if name in _FACTORIES:
        globals()[name] = getattr(import_module(f"sandmesh.toolkits.{_FACTORIES[name]}"), name)
    elif name in TOOLS and name in __all__:
        globals().update(import_module("sandmesh.toolkits.functions").declared_functions())
    else:
        raise AttributeError(f"module 'sandmesh.tools' has no attribute {name!r}")
    found: object = globals()[name]
    return found


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
