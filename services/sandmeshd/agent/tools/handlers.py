"""Which tools this agent has and what runs each. Importing it is slow: tools are declared with pydantic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sandmesh._tools import (
    AddMcpServers,
    CommitChanges,
    ConnectMcp,
    CreateKernel,
    DeleteKernel,
    GenerateDiff,
    GitLogs,
    InterruptKernel,
    ListKernels,
    ListMcpServers,
    ListProcesses,
    RemoveMcpServer,
    RestartKernel,
    RunCell,
    RunIpythonCell,
    RunShellCommand,
    StartProcess,
    Tool,
    WaitForPort,
    WatchTools,
    parse,
)
from sandmesh.errors import InvalidArgument
from sandmeshd.agent.calls.threads import in_thread
from sandmeshd.agent.calls.toolbox import Handler, Service, Toolbox
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.mcp.manager.servers import Servers
from sandmeshd.agent.python.kernel_table import KernelTable
from sandmeshd.agent.tools import files
from sandmeshd.agent.tools.git import Git
from sandmeshd.agent.tools.ports import wait_for_port
from sandmeshd.agent.tools.shell import Shell, check_user

if TYPE_CHECKING:
    from sandmeshd.agent.tools.browser.tools import Browser

FIRST: Final[tuple[type[Tool], ...]] = (RunIpythonCell, RunShellCommand)


@dataclass(frozen=True)
class Runners:
    """What runs tools."""

    kernels: KernelTable
    shell: Shell
    servers: Servers
    browser: Browser | None
    """None where the sandbox has no browser tools, and need not import what runs them."""


def make_toolbox(
    runners: Runners, workspace: Workspace, groups: Sequence[str], services: Mapping[str, Service], *, whole: bool
) -> Toolbox:
    """Create the tools of these groups, and the services; the most frequent first tools are ready for their first call.

    With `whole` all are: for whom others are forked from.
    """
    kernels, shell, servers = runners.kernels, runners.shell, runners.servers
    handlers: dict[type[Tool], Handler] = {
        RunIpythonCell: kernels.default.run,
        RunShellCommand: shell.run,
        StartProcess: shell.start,
        ListProcesses: shell.list,
        WaitForPort: wait_for_port,
        **_kernel_handlers(kernels),
        **_server_handlers(servers),
        **_git_handlers(Git(shell.programs)),
    }
    if "filesystem" in groups:
        handlers.update(_file_handlers(workspace))
    if runners.browser is not None:
        handlers.update(runners.browser.handlers())
        services = {**services, **runners.browser.services()}
    if "computer-use" in groups:
        # Of all sandboxes only those with a desktop import it.
        handlers.update(import_module("sandmeshd.agent.tools.desktop.handlers").make_handlers(shell.programs))
    for cls in handlers if whole else FIRST:
        with suppress(InvalidArgument):
            parse(cls, b"{}")
    checks: dict[type[Tool], Callable[[Any], None]] = {
        StartProcess: check_user,
        AddMcpServers: servers.check_add,
        RemoveMcpServer: servers.check_remove,
    }
    return Toolbox(handlers, groups, checks, services, servers)


def _kernel_handlers(kernels: KernelTable) -> dict[type[Tool], Handler]:
    return {
        CreateKernel: kernels.create,
        ListKernels: kernels.list,
        RunCell: kernels.run,
        InterruptKernel: kernels.interrupt,
        RestartKernel: kernels.restart,
        DeleteKernel: kernels.delete,
    }


def _server_handlers(servers: Servers) -> dict[type[Tool], Handler]:
    return {
        AddMcpServers: servers.add,
        RemoveMcpServer: servers.remove,
        ListMcpServers: servers.list_all,
        WatchTools: servers.watch,
        ConnectMcp: servers.connect,
    }


def _git_handlers(git: Git) -> dict[type[Tool], Handler]:
    return {CommitChanges: git.commit, GenerateDiff: git.diff, GitLogs: git.log}


def _file_handlers(workspace: Workspace) -> Mapping[type[Tool], Handler]:
    return {cls: in_thread(partial(function, workspace)) for cls, function in files.HANDLERS.items()}
