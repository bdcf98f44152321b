"""Written by `make stubs` from the declarations of `sandmesh._tools`."""

from sandmesh._tools.browser import (
    BrowserClick,
    BrowserClose,
    BrowserConsoleMessages,
    BrowserDrag,
    BrowserEvaluate,
    BrowserFileUpload,
    BrowserFillForm,
    BrowserHandleDialog,
    BrowserHover,
    BrowserMouseClickXy,
    BrowserMouseDragXy,
    BrowserMouseMoveXy,
    BrowserMouseWheel,
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
    FormField,
)
from sandmesh._tools.declaration import PLUMBING, TOOLS, Tool, build, description, dump
from sandmesh._tools.desktop import (
    ComputerUse,
    FocusWindow,
    GetClipboard,
    GetScreen,
    LaunchProgram,
    ListWindows,
    ResizeScreen,
    SetClipboard,
    SetKeyboardLayout,
    StartRecording,
    StopRecording,
    TakeScreenshot,
)
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
from sandmesh._tools.kernels import (
    CreateKernel,
    DeleteKernel,
    DropMark,
    ForkKernel,
    InterruptKernel,
    ListKernels,
    MarkKernel,
    RestartKernel,
    RewindKernel,
    RunCell,
    RunCode,
)
from sandmesh._tools.mcp import AddMcpServers, ConnectMcp, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh._tools.mobile import (
    Adb,
    AdbUse,
    MobileGetScreenResolution,
    MobileGetScreenshot,
    MobileInputText,
    MobileKeyEvent,
    MobileSwipe,
    MobileTap,
)
from sandmesh._tools.processes import ListCalls, ListProcesses, ReadStats, StartProcess, TerminalSize, WaitForPort
from sandmesh._tools.training import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step
from sandmesh._tools.validation import input_schema, parse
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
browser_mouse_click_xy: DeclaredTool
browser_mouse_drag_xy: DeclaredTool
browser_mouse_move_xy: DeclaredTool
browser_mouse_wheel: DeclaredTool
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
    "Adb",
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
    "BrowserMouseClickXy",
    "BrowserMouseDragXy",
    "BrowserMouseMoveXy",
    "BrowserMouseWheel",
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
    "DropMark",
    "Edit",
    "EditFile",
    "Evaluate",
    "FocusWindow",
    "ForkKernel",
    "FormField",
    "FunctionTool",
    "GenerateDiff",
    "GetClipboard",
    "GetEnvProfile",
    "GetFileInfo",
    "GetScreen",
    "GetTaskIds",
    "GitLogs",
    "InterruptKernel",
    "LaunchProgram",
    "ListAllowedDirectories",
    "ListCalls",
    "ListDirectory",
    "ListKernels",
    "ListMcpServers",
    "ListProcesses",
    "ListWindows",
    "MCPConfigConverter",
    "MarkKernel",
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
    "ReadStats",
    "ReleaseInstance",
    "RemoveMcpServer",
    "ResizeScreen",
    "RestartKernel",
    "RewindKernel",
    "RunCell",
    "RunCode",
    "RunIpythonCell",
    "RunShellCommand",
    "SandboxTool",
    "SearchFiles",
    "SetClipboard",
    "SetKeyboardLayout",
    "StartProcess",
    "StartRecording",
    "Step",
    "StopRecording",
    "TakeScreenshot",
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
    "browser_mouse_click_xy",
    "browser_mouse_drag_xy",
    "browser_mouse_move_xy",
    "browser_mouse_wheel",
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
