"""The tools of each group as methods: one line a tool, for sync and async boxes alike."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sandmesh._tools import (
    AdbUse,
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
    CreateDirectory,
    DirectoryTree,
    EditFile,
    GenerateDiff,
    GetFileInfo,
    GitLogs,
    ListAllowedDirectories,
    ListDirectory,
    MobileGetScreenResolution,
    MobileGetScreenshot,
    MobileInputText,
    MobileKeyEvent,
    MobileSwipe,
    MobileTap,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    RunCode,
    RunIpythonCell,
    RunShellCommand,
    SearchFiles,
    WriteFile,
)
from sandmesh.sandbox.tool_calls import tool_method


class GenericTools:
    """Code and commands."""

    run_code = tool_method(RunCode)
    run_ipython_cell = tool_method(RunIpythonCell)
    run_shell_command = tool_method(RunShellCommand)


class GitTools:
    """The history of the workspace."""

    commit_changes = tool_method(CommitChanges)
    generate_diff = tool_method(GenerateDiff)
    git_logs = tool_method(GitLogs)


class FilesystemTools:
    """The files of the workspace."""

    read_file = tool_method(ReadFile)
    read_multiple_files = tool_method(ReadMultipleFiles)
    write_file = tool_method(WriteFile)
    edit_file = tool_method(EditFile)
    create_directory = tool_method(CreateDirectory)
    list_directory = tool_method(ListDirectory)
    directory_tree = tool_method(DirectoryTree)
    move_file = tool_method(MoveFile)
    search_files = tool_method(SearchFiles)
    get_file_info = tool_method(GetFileInfo)
    list_allowed_directories = tool_method(ListAllowedDirectories)


class BrowserTools:
    """The browser."""

    browser_navigate = tool_method(BrowserNavigate)
    browser_navigate_back = tool_method(BrowserNavigateBack)
    browser_navigate_forward = tool_method(BrowserNavigateForward)
    browser_snapshot = tool_method(BrowserSnapshot)
    browser_click = tool_method(BrowserClick)
    browser_type = tool_method(BrowserType)
    browser_fill_form = tool_method(BrowserFillForm)
    browser_select_option = tool_method(BrowserSelectOption)
    browser_hover = tool_method(BrowserHover)
    browser_drag = tool_method(BrowserDrag)
    browser_press_key = tool_method(BrowserPressKey)
    browser_file_upload = tool_method(BrowserFileUpload)
    browser_handle_dialog = tool_method(BrowserHandleDialog)
    browser_wait_for = tool_method(BrowserWaitFor)
    browser_take_screenshot = tool_method(BrowserTakeScreenshot)
    browser_pdf_save = tool_method(BrowserPdfSave)
    browser_console_messages = tool_method(BrowserConsoleMessages)
    browser_network_requests = tool_method(BrowserNetworkRequests)
    browser_evaluate = tool_method(BrowserEvaluate)
    browser_resize = tool_method(BrowserResize)
    browser_tab_list = tool_method(BrowserTabList)
    browser_tab_new = tool_method(BrowserTabNew)
    browser_tab_select = tool_method(BrowserTabSelect)
    browser_tab_close = tool_method(BrowserTabClose)
    browser_close = tool_method(BrowserClose)
    browser_storage_state = tool_method(BrowserStorageState)
    browser_set_storage_state = tool_method(BrowserSetStorageState)


class DesktopTools:
    """The screen, the mouse and the keyboard."""

    computer_use = tool_method(ComputerUse)


class MobileTools:
    """The screen and the keys of an Android device."""

    adb_use = tool_method(AdbUse)
    mobile_get_screen_resolution = tool_method(MobileGetScreenResolution)
    mobile_tap = tool_method(MobileTap)
    mobile_swipe = tool_method(MobileSwipe)
    mobile_input_text = tool_method(MobileInputText)
    mobile_key_event = tool_method(MobileKeyEvent)
    mobile_get_screenshot = tool_method(MobileGetScreenshot)


MIXINS: Mapping[str, type] = MappingProxyType(
    {
        "generic": GenericTools,
        "git": GitTools,
        "filesystem": FilesystemTools,
        "browser": BrowserTools,
        "computer-use": DesktopTools,
        "mobile": MobileTools,
    },
)
