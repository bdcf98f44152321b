"""Declarations of the tools, shared by the SDK, the agent and the MCP adapter."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
from sandmesh._tools.declaration import PLUMBING, TOOLS, Param, Tool, build, description, dump
from sandmesh._tools.desktop import (
    ComputerUse,
    FocusWindow,
    GetClipboard,
    GetScreen,
    LaunchProgram,
    ListWindows,
    ResizeScreen,
    SetClipboard,
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
    InterruptKernel,
    ListKernels,
    RestartKernel,
    RunCell,
    RunCode,
)
from sandmesh._tools.mcp import AddMcpServers, ConnectMcp, ListMcpServers, RemoveMcpServer, WatchTools
from sandmesh._tools.processes import ListProcesses, StartProcess, TerminalSize, WaitForPort
from sandmesh._tools.training import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step

if TYPE_CHECKING:
    from sandmesh._tools.validation import input_schema, parse

__all__ = [
    "PLUMBING",
    "TOOLS",
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
    "FocusWindow",
    "FormField",
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
    "ListDirectory",
    "ListKernels",
    "ListMcpServers",
    "ListProcesses",
    "ListWindows",
    "MoveFile",
    "Param",
    "ReadFile",
    "ReadMultipleFiles",
    "ReleaseInstance",
    "RemoveMcpServer",
    "ResizeScreen",
    "RestartKernel",
    "RunCell",
    "RunCode",
    "RunIpythonCell",
    "RunShellCommand",
    "SearchFiles",
    "SetClipboard",
    "StartProcess",
    "StartRecording",
    "Step",
    "StopRecording",
    "TakeScreenshot",
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


def __getattr__(name: str) -> object:
    """Import what needs pydantic at its first use."""
    if name not in ("input_schema", "parse"):
        raise AttributeError(f"module 'sandmesh._tools' has no attribute {name!r}")
    found: object = getattr(import_module("sandmesh._tools.validation"), name)
    return found
