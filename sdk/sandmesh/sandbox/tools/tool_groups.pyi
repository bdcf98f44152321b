"""Written by `make stubs` from the declarations of `sandmesh._tools`."""

from collections.abc import Mapping
from typing import Final

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
)
from sandmesh._tools.desktop import ComputerUse
from sandmesh._tools.filesystem import (
    CreateDirectory,
    DirectoryTree,
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
from sandmesh._tools.generic import RunIpythonCell, RunShellCommand
from sandmesh._tools.git import CommitChanges, GenerateDiff, GitLogs
from sandmesh._tools.kernels import RunCode
from sandmesh._tools.mobile import (
    AdbUse,
    MobileGetScreenResolution,
    MobileGetScreenshot,
    MobileInputText,
    MobileKeyEvent,
    MobileSwipe,
    MobileTap,
)
from sandmesh._tools.training import CreateInstance, Evaluate, GetEnvProfile, GetTaskIds, ReleaseInstance, Step
from sandmesh.sandbox.tools.tool_calls import tool_method

class BrowserTools:
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
    browser_mouse_click_xy = tool_method(BrowserMouseClickXy)
    browser_mouse_move_xy = tool_method(BrowserMouseMoveXy)
    browser_mouse_drag_xy = tool_method(BrowserMouseDragXy)
    browser_mouse_wheel = tool_method(BrowserMouseWheel)
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

class ComputerUseTools:
    computer_use = tool_method(ComputerUse)

class FilesystemTools:
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

class GenericTools:
    run_ipython_cell = tool_method(RunIpythonCell)
    run_shell_command = tool_method(RunShellCommand)
    run_code = tool_method(RunCode)

class GitTools:
    commit_changes = tool_method(CommitChanges)
    generate_diff = tool_method(GenerateDiff)
    git_logs = tool_method(GitLogs)

class MobileTools:
    adb_use = tool_method(AdbUse)
    mobile_get_screen_resolution = tool_method(MobileGetScreenResolution)
    mobile_tap = tool_method(MobileTap)
    mobile_swipe = tool_method(MobileSwipe)
    mobile_input_text = tool_method(MobileInputText)
    mobile_key_event = tool_method(MobileKeyEvent)
    mobile_get_screenshot = tool_method(MobileGetScreenshot)

class TrainingTools:
    get_task_ids = tool_method(GetTaskIds)
    get_env_profile = tool_method(GetEnvProfile)
    create_instance = tool_method(CreateInstance)
    step = tool_method(Step)
    evaluate = tool_method(Evaluate)
    release_instance = tool_method(ReleaseInstance)

MIXINS: Final[Mapping[str, type]]

def mixin_name(group: str) -> str: ...
