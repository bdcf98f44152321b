"""Which tools this agent has and what runs each. Importing it is slow: tools are declared with pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    RunCode,
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
    from sandmeshd.agent.network.exposed_ports import Exposures
    from sandmeshd.agent.tools.browser.tools import Browser
    from sandmeshd.agent.tools.recorder.handlers import Recorder
    from sandmeshd.agent.tools.training.tools import Training

FIRST: Final[tuple[type[Tool], ...]] = (RunIpythonCell, RunShellCommand)
_ARGUMENTS: Final = b'{"code": "pass", "command": "true"}'
"""A short string among them makes pydantic allocate its cache of strings, 256 KiB, where forks share it."""
_ready: Final[set[type[Tool]]] = set()
"""The tools whose arguments were read before, in this process or in what it was forked from."""


@dataclass(frozen=True)
class Runners:
    """What runs tools."""

    kernels: KernelTable
    shell: Shell
    servers: Servers
    ports: Exposures
    browser: Browser | None
    """None where the sandbox has no browser tools, and need not import what runs them."""
    training: Training | None = None
    """Likewise."""


def make_toolbox(
    runners: Runners, workspace: Workspace, groups: Sequence[str], services: Mapping[str, Service], *, whole: bool
) -> Toolbox:
    """Create the tools of these groups, and the services; the most frequent first tools are ready for their first call.

    With `whole` all are: for whom others are forked from, which find them ready.
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
    recorder = _make_recorder(runners, groups)
    if recorder is not None:
        handlers.update(recorder.handlers())
    if "filesystem" in groups:
        handlers.update(_file_handlers(workspace))
    if runners.browser is not None:
        handlers.update(runners.browser.handlers())
        view = _add_view("browser", runners.browser.view, runners.ports)
        services = {**services, **runners.browser.services(), **view}
    if runners.training is not None:
        handlers.update(runners.training.handlers())
    if "computer-use" in groups:
        # Of all sandboxes only those with a desktop import it.
        desktop = import_module("sandmeshd.agent.tools.desktop.handlers").make_desktop(shell.programs, recorder)
        handlers.update(desktop.handlers())
        services = {**services, **_add_view("desktop", desktop.view, runners.ports)}
    if "mobile" in groups:
        mobile = import_module("sandmeshd.agent.tools.mobile.handlers").make_mobile(shell.programs)
        handlers.update(mobile.handlers())
        services = {**services, **_add_view("mobile", mobile.view, runners.ports)}
    if not _ready:
        _get_ready(handlers if whole else FIRST)
    checks: dict[type[Tool], Callable[[Any], None]] = {
        StartProcess: check_user,
        AddMcpServers: servers.check_add,
        RemoveMcpServer: servers.check_remove,
    }
    return Toolbox(handlers, groups, checks, services, servers)


def _get_ready(tools: Iterable[type[Tool]]) -> None:
    for cls in tools:
        with suppress(InvalidArgument):
            parse(cls, _ARGUMENTS)
    _ready.update(tools)


def _make_recorder(runners: Runners, groups: Sequence[str]) -> Recorder | None:
    """Return what records the screen or the browser; None where there is neither, which need not import it."""
    if "computer-use" not in groups and runners.browser is None:
        return None
    module = import_module("sandmeshd.agent.tools.recorder.handlers")
    recorder: Recorder = module.make_recorder(runners.shell.programs)
    if runners.browser is not None:
        runners.browser.trace, recorder.page = recorder.trace, runners.browser
    return recorder


def _add_view(kind: str, view: Any, ports: Exposures) -> Mapping[str, Service]:
    """Add what people watch to what URLs lead to, and return what serves the gateway."""
    ports.add(kind, partial(view.dial, readonly=False))
    ports.add(f"{kind}-readonly", partial(view.dial, readonly=True))
    services: Mapping[str, Service] = view.services()
    return services


def _kernel_handlers(kernels: KernelTable) -> dict[type[Tool], Handler]:
    return {
        CreateKernel: kernels.create,
        ListKernels: kernels.list,
        RunCell: kernels.run,
        RunCode: kernels.run_code,
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
