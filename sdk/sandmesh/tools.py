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
    AdbUse,
    AddMcpServers,
    BrowserClick,
    BrowserClose,
    BrowserConsoleMessages,
    BrowserDrag,
    BrowserEvaluate,
    BrowserFileUpload,
    BrowserFillForm,
    BrowserHandleDialog,
    BrowserHover,
    BrowserNavigate,
    BrowserNavigateBack,
    BrowserNavigateForward,
    BrowserNetworkRequests,
    BrowserPdfSave,
    BrowserPressKey,
    BrowserResize,
    BrowserSelectOption,
    BrowserSetStorageState,
    BrowserSnapshot,
    BrowserStorageState,
    BrowserTabClose,
    BrowserTabList,
    BrowserTabNew,
    BrowserTabSelect,
    BrowserTakeScreenshot,
    BrowserType,
    BrowserWaitFor,
    CommitChanges,
    ComputerUse,
    ConnectMcp,
    CreateDirectory,
    CreateInstance,
    CreateKernel,
    DeleteKernel,
    DirectoryTree,
    Edit,
    EditFile,
    Evaluate,
    FormField,
    GenerateDiff,
    GetEnvProfile,
    GetFileInfo,
    GetTaskIds,
    GitLogs,
    InterruptKernel,
    ListAllowedDirectories,
    ListDirectory,
    ListKernels,
    ListMcpServers,
    ListProcesses,
    MobileGetScreenResolution,
    MobileGetScreenshot,
    MobileInputText,
    MobileKeyEvent,
    MobileSwipe,
    MobileTap,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    ReleaseInstance,
    RemoveMcpServer,
    RestartKernel,
    RunCell,
    RunIpythonCell,
    RunShellCommand,
    SearchFiles,
    StartProcess,
    Step,
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

    adb_use: DeclaredTool
    browser_click: DeclaredTool
    browser_close: DeclaredTool
    browser_console_messages: DeclaredTool
    browser_drag: DeclaredTool
    browser_evaluate: DeclaredTool
    browser_file_upload: DeclaredTool
    browser_fill_form: DeclaredTool
    browser_handle_dialog: DeclaredTool
    browser_hover: DeclaredTool
    browser_navigate: DeclaredTool
    browser_navigate_back: DeclaredTool
    browser_navigate_forward: DeclaredTool
    browser_network_requests: DeclaredTool
    browser_pdf_save: DeclaredTool
    browser_press_key: DeclaredTool
    browser_resize: DeclaredTool
    browser_select_option: DeclaredTool
    browser_set_storage_state: DeclaredTool
    browser_snapshot: DeclaredTool
    browser_storage_state: DeclaredTool
    browser_tab_close: DeclaredTool
    browser_tab_list: DeclaredTool
    browser_tab_new: DeclaredTool
    browser_tab_select: DeclaredTool
    browser_take_screenshot: DeclaredTool
    browser_type: DeclaredTool
    browser_wait_for: DeclaredTool
    commit_changes: DeclaredTool
    computer_use: DeclaredTool
    create_directory: DeclaredTool
    create_instance: DeclaredTool
    directory_tree: DeclaredTool
    edit_file: DeclaredTool
    evaluate: DeclaredTool
    generate_diff: DeclaredTool
    get_env_profile: DeclaredTool
    get_file_info: DeclaredTool
    get_task_ids: DeclaredTool
    git_logs: DeclaredTool
    list_allowed_directories: DeclaredTool
    list_directory: DeclaredTool
    mobile_get_screen_resolution: DeclaredTool
    mobile_get_screenshot: DeclaredTool
    mobile_input_text: DeclaredTool
    mobile_key_event: DeclaredTool
    mobile_swipe: DeclaredTool
    mobile_tap: DeclaredTool
    move_file: DeclaredTool
    read_file: DeclaredTool
    read_multiple_files: DeclaredTool
    release_instance: DeclaredTool
    run_ipython_cell: DeclaredTool
    run_shell_command: DeclaredTool
    search_files: DeclaredTool
    step: DeclaredTool
    write_file: DeclaredTool

__all__ = [
    "PLUMBING",
    "TOOLS",
    "AdbUse",
    "AddMcpServers",
    "BrowserClick",
    "BrowserClose",
    "BrowserConsoleMessages",
    "BrowserDrag",
    "BrowserEvaluate",
    "BrowserFileUpload",
    "BrowserFillForm",
    "BrowserHandleDialog",
    "BrowserHover",
    "BrowserNavigate",
    "BrowserNavigateBack",
    "BrowserNavigateForward",
    "BrowserNetworkRequests",
    "BrowserPdfSave",
    "BrowserPressKey",
    "BrowserResize",
    "BrowserSelectOption",
    "BrowserSetStorageState",
    "BrowserSnapshot",
    "BrowserStorageState",
    "BrowserTabClose",
    "BrowserTabList",
    "BrowserTabNew",
    "BrowserTabSelect",
    "BrowserTakeScreenshot",
    "BrowserType",
    "BrowserWaitFor",
    "CommitChanges",
    "ComputerUse",
    "ConnectMcp",
    "CreateDirectory",
    "CreateInstance",
    "CreateKernel",
    "DeleteKernel",
    "DirectoryTree",
    "Edit",
    "EditFile",
    "Evaluate",
    "FormField",
    "FunctionTool",
    "GenerateDiff",
    "GetEnvProfile",
    "GetFileInfo",
    "GetTaskIds",
    "GitLogs",
    "InterruptKernel",
    "ListAllowedDirectories",
    "ListDirectory",
    "ListKernels",
    "ListMcpServers",
    "ListProcesses",
    "MCPConfigConverter",
    "McpTool",
    "MobileGetScreenResolution",
    "MobileGetScreenshot",
    "MobileInputText",
    "MobileKeyEvent",
    "MobileSwipe",
    "MobileTap",
    "MoveFile",
    "ReadFile",
    "ReadMultipleFiles",
    "ReleaseInstance",
    "RemoveMcpServer",
    "RestartKernel",
    "RunCell",
    "RunIpythonCell",
    "RunShellCommand",
    "SandboxTool",
    "SearchFiles",
    "StartProcess",
    "Step",
    "TerminalSize",
    "Tool",
    "ToolFunction",
    "ToolSchema",
    "WaitForPort",
    "WatchTools",
    "WriteFile",
    "adb_use",
    "browser_click",
    "browser_close",
    "browser_console_messages",
    "browser_drag",
    "browser_evaluate",
    "browser_file_upload",
    "browser_fill_form",
    "browser_handle_dialog",
    "browser_hover",
    "browser_navigate",
    "browser_navigate_back",
    "browser_navigate_forward",
    "browser_network_requests",
    "browser_pdf_save",
    "browser_press_key",
    "browser_resize",
    "browser_select_option",
    "browser_set_storage_state",
    "browser_snapshot",
    "browser_storage_state",
    "browser_tab_close",
    "browser_tab_list",
    "browser_tab_new",
    "browser_tab_select",
    "browser_take_screenshot",
    "browser_type",
    "browser_wait_for",
    "build",
    "commit_changes",
    "computer_use",
    "create_directory",
    "create_instance",
    "description",
    "directory_tree",
    "dump",
    "edit_file",
    "evaluate",
    "function_tool",
    "generate_diff",
    "get_env_profile",
    "get_file_info",
    "get_task_ids",
    "git_logs",
    "input_schema",
    "list_allowed_directories",
    "list_directory",
    "mobile_get_screen_resolution",
    "mobile_get_screenshot",
    "mobile_input_text",
    "mobile_key_event",
    "mobile_swipe",
    "mobile_tap",
    "move_file",
    "parse",
    "read_file",
    "read_multiple_files",
    "release_instance",
    "run_ipython_cell",
    "run_shell_command",
    "search_files",
    "step",
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
