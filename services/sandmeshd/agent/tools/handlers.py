"""Which tools this agent has and what runs each. Importing it is slow: tools are declared with pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandmesh._tools import TOOLS, Tool, parse
from sandmesh._tools.generic import RunIpythonCell, RunShellCommand
from sandmesh._tools.mcp import AddMcpServers, RemoveMcpServer
from sandmesh._tools.processes import StartProcess
from sandmesh.errors import InternalError, InvalidArgument
from sandmeshd.agent.calls.toolbox import Handler, Service, Toolbox
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.mcp.manager.servers import Servers
from sandmeshd.agent.processes.stats import ProcessStats
from sandmeshd.agent.python.kernel_table import KernelTable
from sandmeshd.agent.tools.files import FileTools
from sandmeshd.agent.tools.git import Git
from sandmeshd.agent.tools.ports import PortTools
from sandmeshd.agent.tools.shell import ShellCommands

if TYPE_CHECKING:
    from sandmeshd.agent.network.exposed_ports import Exposures
    from sandmeshd.agent.tools.browser.tools import SandboxBrowser
    from sandmeshd.agent.tools.recorder.handlers import Recorder
    from sandmeshd.agent.tools.training.tools import Training

FIRST: Final[tuple[type[Tool], ...]] = (RunIpythonCell, RunShellCommand)
_ARGUMENTS: Final = b'{"code": "pass", "command": "true"}'
"""A short string among them makes pydantic allocate its cache of strings, 256 KiB, where forks share it."""
_ready: Final[set[type[Tool]]] = set()
"""The tools whose arguments were read before, in this process or in what it was forked from."""

_ALWAYS: Final = ("process", "kernel", "mcp")
"""The groups that every sandbox has."""
_WITH: Final[Mapping[str, str]] = {"computer-use": "desktop", "mobile": "device"}
"""The groups that come with another one."""


@dataclass(frozen=True)
class Runners:
    """What runs tools."""

    kernels: KernelTable
    shell: ShellCommands
    servers: Servers
    ports: Exposures
    browser: SandboxBrowser | None
    """None where the sandbox has no browser tools, and need not import what runs them."""
    training: Training | None = None
    """Likewise."""


class HandlerOwner(Protocol):
    """An object that has the handlers of a family of tools."""

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        ...


class HandlerTable:
    """The handlers of all tools of a sandbox, each with the module that it is in."""

    def __init__(self) -> None:
        self.handlers: dict[type[Tool], Handler] = {}
        self._modules: dict[type[Tool], str] = {}

    def add(self, owner: HandlerOwner) -> None:
        """Add the handlers of a family.

        Raises:
            InternalError: Another module has a handler of one of its tools, too.
        """
        module = type(owner).__module__
        handlers = owner.handlers()
        for tool in handlers:
            before = self._modules.setdefault(tool, module)
            if tool in self.handlers:
                raise InternalError(
                    f"the tool {tool.name} is handled twice, in {before} and {module}: remove one of them"
                )
        self.handlers |= handlers

    def check(self, groups: Iterable[str]) -> None:
        """Check that each tool of the groups has a handler.

        Raises:
            InternalError: One has none.
        """
        expected = {*groups, *_ALWAYS, *(_WITH[group] for group in groups if group in _WITH)}
        for name, tool in TOOLS.items():
            if tool.group in expected and tool not in self.handlers:
                places = {module for one, module in self._modules.items() if one.group == tool.group}
                where = f"add it in {' or '.join(sorted(places))}" if places else f"no module handles {tool.group}"
                raise InternalError(f"the tool {name}, declared at {tool.place}, has no handler: {where}")


def make_toolbox(
    runners: Runners, workspace: Workspace, groups: Sequence[str], services: Mapping[str, Service], *, whole: bool
) -> Toolbox:
    """Create the tools of these groups, and the services; the most frequent first tools are ready for their first call.

    With `whole` all are: for whom others are forked from, which find them ready.

    Raises:
        InternalError: A tool of these groups has no handler, or two; the message names both places.
    """
    kernels, shell, servers = runners.kernels, runners.shell, runners.servers
    table = HandlerTable()
    recorder = _make_recorder(runners, groups)
    file_tools = FileTools(workspace) if "filesystem" in groups else None
    stats = ProcessStats(shell.programs.workspace, shell.programs.variable("HOME"))
    always = (kernels, shell, PortTools(), stats, servers, Git(shell.programs))
    owners: tuple[HandlerOwner | None, ...] = (*always, recorder, file_tools, runners.browser, runners.training)
    for owner in filter(None, owners):
        table.add(owner)
    if runners.browser is not None:
        view = _add_view("browser", runners.browser.view, runners.ports)
        services = {**services, **runners.browser.services(), **view}
    if "computer-use" in groups:
        # Of all sandboxes only those with a desktop import it.
        desktop = import_module("sandmeshd.agent.tools.desktop.handlers").make_desktop(shell.programs, recorder)
        table.add(desktop)
        services = {**services, **_add_view("desktop", desktop.view, runners.ports)}
    if "mobile" in groups:
        mobile = import_module("sandmeshd.agent.tools.mobile.handlers").make_mobile(shell.programs)
        table.add(mobile)
        services = {**services, **_add_view("mobile", mobile.view, runners.ports)}
    table.check(groups)
    if not _ready:
        _get_ready(table.handlers if whole else FIRST)
    checks: dict[type[Tool], Callable[[Any], None]] = {
        StartProcess: shell.check_start,
        AddMcpServers: servers.check_add,
        RemoveMcpServer: servers.check_remove,
    }
    return Toolbox(table.handlers, groups, checks, services, servers)


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
