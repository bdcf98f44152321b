"""The tools of each group as methods: one line a tool, for sync and async boxes alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from sandmesh._tools import (
    CommitChanges,
    CreateDirectory,
    DirectoryTree,
    EditFile,
    GenerateDiff,
    GetFileInfo,
    GitLogs,
    ListAllowedDirectories,
    ListDirectory,
    MoveFile,
    ReadFile,
    ReadMultipleFiles,
    RunIpythonCell,
    RunShellCommand,
    SearchFiles,
    Tool,
    WriteFile,
    build,
    description,
)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class ToolCaller(Protocol[R_co]):
    """A box: `R_co` is a ToolResult, or what is awaited for one."""

    def call(self, declaration: Tool) -> R_co:
        """Run a tool by its declaration."""
        ...


def tool_method(declaration: Callable[P, Tool]) -> Callable[Concatenate[ToolCaller[R], P], R]:
    """Make the method that runs a tool, with the parameters and description of its declaration."""

    def method(self: ToolCaller[R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(build(declaration, *args, **kwargs))

    declared = cast("type[Tool]", declaration)
    method.__name__ = method.__qualname__ = declared.name
    method.__doc__ = description(declared)
    own = signature(declared)
    self_parameter = next(iter(signature(method).parameters.values()))
    parameters = [self_parameter, *own.parameters.values()]
    method.__signature__ = own.replace(parameters=parameters, return_annotation="ToolResult")  # type: ignore[attr-defined]
    return method


class GenericTools:
    """Code and commands."""

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


MIXINS: Mapping[str, type] = MappingProxyType(
    {"generic": GenericTools, "git": GitTools, "filesystem": FilesystemTools},
)
