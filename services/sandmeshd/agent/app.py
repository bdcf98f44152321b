"""Composes the agent."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.shared.version import __version__
from sandmeshd.agent.calls.dispatcher import AgentIdentity, CallPolicy, Dispatcher, Retention, Tools
from sandmeshd.agent.calls.spill import Disk
from sandmeshd.agent.link.link import serve_links
from sandmeshd.agent.network.egress import Egress
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.namespaces import zygote_config
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.processes.spawner import ProcessLimits, ProcessSpawner
from sandmeshd.agent.python.cells import Cells
from sandmeshd.agent.python.image_python import open_python
from sandmeshd.agent.python.kernel_table import KernelTable
from sandmeshd.agent.python.kernels import open_kernel
from sandmeshd.agent.python.languages import PYTHON, open_language
from sandmeshd.agent.startup.deferred import Deferred
from sandmeshd.agent.startup.first_call import FirstCall
from sandmeshd.agent.startup.first_tools import FirstTools
from sandmeshd.agent.tools.shell import ShellCommands
from sandmeshd.agent.userland.core import syscalls

_MAX_PROCESSES: Final = 512
_MOST_DESCRIPTORS: Final = 8192
_MOST_SIGNALS: Final = 4096
_IMPORT_DELAY_SECONDS: Final = 2.0
"""After which an agent warms up; so long after its first call it imports all tools, unless a call needs them before."""
_IMPORT_STEPS: Final = (
    "typing_extensions",
    "pydantic_core",
    "annotated_types",
    "pydantic",
    "pydantic.json_schema",
    "pydantic.types",
    "pydantic.main",
    "pydantic.dataclasses",
    "sandmesh._tools.validation",
    "sandmeshd.agent.tools.files",
    "sandmeshd.agent.mcp.manager.servers",
    "sandmeshd.agent.tools.handlers",
    "sandmeshd.agent.files.trees.archives",
    "sandmeshd.agent.files.service",
)
"""The modules that the tools import, in parts of about 10 ms."""
_HANDSHAKE_SECONDS: Final = 10.0


def configure_zygote(config: agent_pb2.AgentConfig, control: socket.socket) -> None:
    """Send its configuration to the zygote that waits at the other end of `control`."""
    environment = dict(config.environment)
    control.send(
        zygote_config(config.python, environment, config.hidden_directory, config.seccomp_filter, config.user_id)
    )


@asynccontextmanager
async def open_agent(
    config: agent_pb2.AgentConfig, control: socket.socket, memory: Memory, *, in_image: bool = False
) -> AsyncGenerator[ProcessSpawner]:
    """Serve a sandbox whose zygote is at the other end of `control`. Yields its processes once the agent listens.

    `in_image` is whether kernels may be of a Python that is not the template's.

    Raises:
        OSError: The namespaces of user code could not be created, or the address cannot be bound.
    """
    environment = dict(config.environment)
    if config.max_file_bytes:
        # The file tools write in this process. Python ignores SIGXFSZ, so a write beyond the limit just fails.
        resource.setrlimit(resource.RLIMIT_FSIZE, (config.max_file_bytes, config.max_file_bytes))
    own = os.geteuid()
    _touch_files_as(config.user_id, config.group_id)
    async with AsyncExitStack() as stack:
        processes = ProcessSpawner(control, _limits(config))
        stack.callback(processes.close)
        kernels = _kernels(stack, config, processes, memory, in_image=in_image)
        programs = Programs(processes, config.workspace, environment, memory)
        stack.callback(programs.close)
        imported: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shell = ShellCommands(programs, config.entrypoint, config.entrypoint_arguments)
        dispatcher = _dispatcher(config, _tools(stack, config, kernels, shell, processes, imported))
        dispatcher.record = config.record
        stack.push_async_callback(dispatcher.close)
        first_call = FirstCall(dispatcher, kernels.default)
        stack.push_async_callback(first_call.close)
        imported.add_done_callback(lambda _: first_call.schedule())
        if config.certificates_file:
            import_module("sandmeshd.agent.network.certificates").write_bundle(config)
        egress = await _open_egress(stack, config.egress_port)
        # Its socket is in a directory that is closed to user code.
        _touch_files_as(config.user_id and own)
        with _open_to_node():
            await _listen(stack, config, serve_links(dispatcher, egress))
        _touch_files_as(config.user_id, config.group_id)
        await processes.up
        yield processes


def _touch_files_as(user: int, group: int = 0) -> None:
    if user:
        syscalls.touch_files_as(user, group or user)


@contextmanager
def _open_to_node() -> Generator[None]:
    """Make new sockets connectable for any user of the node; user code cannot enter their directory."""
    # gVisor ignores a later change of the mode of a socket that the host sees.
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def _limits(config: agent_pb2.AgentConfig) -> ProcessLimits:
    # In a container the runtime limits them, unless the driver configures otherwise.
    processes = config.max_processes or (0 if config.user_id else _MAX_PROCESSES)
    descriptors = _part_of(resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS)
    signals = _part_of(resource.RLIMIT_SIGPENDING, _MOST_SIGNALS)
    return ProcessLimits(processes, config.max_file_bytes, config.user_id, descriptors, signals, config.group_id)


def _part_of(rlimit: int, most: int) -> int:
    """Return user code's limit of what the kernel counts by uid; the rest is for agents."""
    soft, _ = resource.getrlimit(rlimit)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // 2)


def _dispatcher(config: agent_pb2.AgentConfig, tools: Callable[[], Tools]) -> Dispatcher:
    kernel = os.uname()
    seen = f"{kernel.sysname} {kernel.release} {kernel.version}"
    identity = AgentIdentity(config.sandbox_id, config.agent_token, __version__, seen)
    has_ttl = config.HasField("finished_call_ttl")
    retention = Retention(seconds=config.finished_call_ttl.ToNanoseconds() / 1e9) if has_ttl else Retention()
    max_seconds = config.call_timeout.ToNanoseconds() / 1e9 if config.HasField("call_timeout") else None
    policy = CallPolicy(retention, disk=Disk(config.workspace), max_seconds=max_seconds)
    return Dispatcher(identity, config.fencing_token, tools, policy)


def _kernels(
    stack: AsyncExitStack,
    config: agent_pb2.AgentConfig,
    processes: ProcessSpawner,
    memory: Memory,
    *,
    in_image: bool,
) -> KernelTable:
    """Start the default kernel; others start on request."""
    environment = dict(config.environment)

    def make(language: str, cwd: str) -> Cells:
        if language != PYTHON:
            start = partial(open_language, processes, config.python, environment, language, cwd)
        elif in_image:
            start = partial(open_python, processes, environment, cwd)
        else:
            start = partial(open_kernel, processes, cwd)
        return Cells(processes, start, memory)

    default = make(PYTHON, config.workspace)
    stack.push_async_callback(default.close)
    default.renew()
    kernels = KernelTable(default, make, config.workspace)
    stack.push_async_callback(kernels.close)
    return kernels


def _tools(
    stack: AsyncExitStack,
    config: agent_pb2.AgentConfig,
    kernels: KernelTable,
    shell: ShellCommands,
    processes: ProcessSpawner,
    imported: asyncio.Future[None],
) -> Callable[[], Tools]:
    """Return what makes the tools, at the first call or once they are imported: in steps in a thread, if need be.

    `imported` is done when all modules of the tools are, or there was no call for a while.
    """
    opened: list[Any] = []

    def make(*, whole: bool = False) -> Any:
        confinement = import_module("sandmeshd.agent.files.confinement")
        workspace = confinement.Workspace(config.workspace, config.granted_paths)
        files = import_module("sandmeshd.agent.files.service").FileService(
            workspace, config.max_file_bytes, config.home, config.image_changes
        )
        ports = import_module("sandmeshd.agent.network.exposed_ports").Exposures()
        memory = shell.programs.memory
        # They need the template's packages, whatever Python an image has.
        kernel = partial(open_kernel, processes, config.workspace)
        own = import_module("sandmeshd.agent.tools.template_tools").OwnTools(
            config.own_tools, lambda: Cells(processes, kernel, memory)
        )
        images = _kernel_images(config, kernels, processes, memory)
        services = {**files.services(), **ports.services(), **own.services(), **images}
        servers = import_module("sandmeshd.agent.mcp.manager.servers").make_servers(processes, config)
        opened.extend([servers, own, _browser(processes, config, ports), _training(processes, config, memory)])
        handlers = import_module("sandmeshd.agent.tools.handlers")
        runners = handlers.Runners(kernels, shell, opened[0], ports, *opened[-2:])
        if not config.fencing_token:
            _warm_browser(runners.browser, imported.get_loop())
        toolbox = handlers.make_toolbox(runners, workspace, config.tool_groups, services, whole=whole)
        _relieve_collector()
        _complete(imported)
        return toolbox

    stack.push_async_callback(_close_all, opened)
    if "sandmeshd.agent.tools.handlers" in sys.modules:
        imported.set_result(None)
        return cache(partial(make, whole=True))
    return _deferred_tools(stack, config, kernels, shell, imported, make)


def _deferred_tools(
    stack: AsyncExitStack,
    config: agent_pb2.AgentConfig,
    kernels: KernelTable,
    shell: ShellCommands,
    imported: asyncio.Future[None],
    make: Callable[[], Any],
) -> Callable[[], Tools]:
    """Return what makes the tools in steps in a thread, and serves a first cell or command without them."""
    deferred = Deferred(_IMPORT_STEPS, make)
    stack.callback(deferred.close)
    if "generic" not in config.tool_groups or config.own_tools or config.mcp_config:
        deferred.begin()
        return deferred.get
    # Until somebody calls it, a sandbox does without the rest of the tools, a sixth of its memory. In gVisor's kernel a
    # call that needs one of them would wait for a second.
    idle: Callable[[], object] = partial(_complete, imported) if syscalls.keeps_file_ids() else deferred.begin
    stack.callback(asyncio.get_running_loop().call_later(_IMPORT_DELAY_SECONDS, idle).cancel)
    cell, command = (deferred.begun_by(one, _IMPORT_DELAY_SECONDS) for one in (kernels.default.run, shell.run))
    first = FirstTools(cell, command, deferred.get)
    return lambda: first


def _kernel_images(
    config: agent_pb2.AgentConfig, kernels: KernelTable, processes: ProcessSpawner, memory: Memory
) -> Any:
    parts = urlsplit(config.listen)
    place = os.path.dirname(parts.path) if parts.scheme == "unix" else ""  # noqa: PTH120 - pathlib is a slow import
    images = import_module("sandmeshd.agent.python.kernel_images").KernelImages(kernels, processes, memory, place)
    return images.services(config.workspace, dict(config.environment))


async def _close_all(opened: list[Any]) -> None:
    for one in filter(None, opened):
        await one.close()


def _warm_browser(browser: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Start the browser of an unclaimed sandbox, so that a claim from its pool finds it running."""
    if browser is not None:
        loop.call_soon_threadsafe(browser.warm)


def _relieve_collector() -> None:
    # Imported modules stay: collections need not scan them again.
    gc.freeze()
    # Thousands of finished calls are kept: scanning them after each few hundred new objects would be slow.
    gc.set_threshold(20_000, 50, 100)


def _browser(processes: ProcessSpawner, config: agent_pb2.AgentConfig, ports: Any) -> Any:
    if "browser" not in config.tool_groups:
        return None
    browser = import_module("sandmeshd.agent.tools.browser.tools").make_browser(processes, config)
    ports.add_port("devtools", browser.debugging_port)
    return browser


def _training(processes: ProcessSpawner, config: agent_pb2.AgentConfig, memory: Memory) -> Any:
    if "training" not in config.tool_groups:
        return None
    return import_module("sandmeshd.agent.tools.training.tools").make_training(processes, config, memory)


def _complete(future: asyncio.Future[None]) -> None:
    """Set a future's result unless it is set, from any thread; a loop that has ended needs none."""

    def complete() -> None:
        if not future.done():
            future.set_result(None)

    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(complete)


async def _open_egress(stack: AsyncExitStack, port: int) -> Egress | None:
    if not port:
        return None
    egress = Egress()
    stack.callback((await egress.listen(port)).close)
    return egress


async def _listen(stack: AsyncExitStack, config: agent_pb2.AgentConfig, links: Callable[[], asyncio.Protocol]) -> None:
    loop = asyncio.get_running_loop()
    parts = urlsplit(config.listen)
    if parts.scheme == "unix":
        server = await loop.create_unix_server(links, parts.path)
    elif parts.scheme == "tcp":
        server = await loop.create_server(links, parts.hostname, parts.port or 0)
    elif parts.scheme == "tls":
        identity = import_module("sandmeshd.agent.link.tls")
        own = config.tls_identity
        tls = identity.load_pem(own) if own else identity.load_identity(config.tls_file)
        server = await loop.create_server(
            links, parts.hostname, parts.port or 0, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_SECONDS
        )
    else:
        raise OSError(f"the agent cannot listen at {config.listen!r}: use unix:///path, tcp://host:port or tls://...")
    stack.callback(server.close)
