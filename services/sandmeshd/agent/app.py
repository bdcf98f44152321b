"""The agent put together."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.agent.calls.call_table import Keeping
from sandmeshd.agent.calls.dispatcher import Engine, Held, Identity, Tools
from sandmeshd.agent.calls.spill import Disk
from sandmeshd.agent.link.link import serve_links
from sandmeshd.agent.network.egress import Egress
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.namespaces import describe
from sandmeshd.agent.processes.programs import Programs
from sandmeshd.agent.processes.spawner import Limits, Processes
from sandmeshd.agent.python.cells import Cells
from sandmeshd.agent.python.kernel_table import Kernels
from sandmeshd.agent.python.kernels import open_jupyter, open_kernel
from sandmeshd.agent.startup.deferred import Late
from sandmeshd.agent.startup.warmup import Practice
from sandmeshd.agent.tools.early import Early
from sandmeshd.agent.tools.shell import Shell
from sandmeshd.agent.userland import syscalls

VERSION: Final = "0.1.0.dev0"
_PROCESSES: Final = 512
_IDLE_SECONDS: Final = 0.1
_SOON_SECONDS: Final = 2.0
"""After which all tools begin to be imported, where the first calls did without them."""
_STEPS: Final = (
    "typing_extensions",
    "pydantic_core",
    "annotated_types",
    "pydantic",
    "pydantic.json_schema",
    "pydantic.types",
    "pydantic.main",
    "pydantic.dataclasses",
    "sandmesh._tools",
    "sandmeshd.agent.tools.files",
    "sandmeshd.agent.mcp.manager.servers",
    "sandmeshd.agent.tools.handlers",
    "sandmeshd.agent.files.archives",
    "sandmeshd.agent.files.service",
)
"""What the tools import, in parts of about 10 ms."""
_HANDSHAKE_SECONDS: Final = 10.0


def tell_zygote(config: agent_pb2.AgentConfig, control: socket.socket) -> None:
    """Let the zygote be born that waits at the other end of `control`."""
    told = (config.python, dict(config.environment), config.hidden_directory, config.seccomp_filter, config.user_id)
    control.send(describe(*told))


@asynccontextmanager
async def open_agent(
    config: agent_pb2.AgentConfig, control: socket.socket, memory: Memory
) -> AsyncGenerator[Processes]:
    """Serve a sandbox whose zygote is at the other end of `control`. Yields its processes once it listens.

    Raises:
        OSError: The namespaces of user code could not be made, or the address cannot be listened at.
    """
    environment = dict(config.environment)
    if config.max_file_bytes:
        # The file tools write here. Python ignores the signal, so that a write which is too much just fails.
        resource.setrlimit(resource.RLIMIT_FSIZE, (config.max_file_bytes, config.max_file_bytes))
    own = os.geteuid()
    _touch_files_as(config.user_id)
    async with AsyncExitStack() as stack:
        processes = Processes(control, _limits(config))
        stack.callback(processes.close)
        kernels = _kernels(stack, config, processes, memory)
        programs = Programs(processes, config.workspace, environment, memory)
        stack.callback(programs.close)
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        engine = _engine(config, _tools(stack, config, kernels, Shell(programs), processes, made))
        stack.push_async_callback(engine.close)
        practice = Practice(engine, kernels.default)
        stack.push_async_callback(practice.close)
        made.add_done_callback(lambda _: practice.begin())
        egress = await _open_egress(stack, config.egress_port)
        # Its socket is where user code may not go.
        _touch_files_as(config.user_id and own)
        with _open_to_node() if config.user_id else nullcontext():
            await _listen(stack, config, serve_links(engine, egress))
        _touch_files_as(config.user_id)
        await processes.up
        yield processes


def _touch_files_as(user: int) -> None:
    if user:
        syscalls.touch_files_as(user)


@contextmanager
def _open_to_node() -> Generator[None]:
    """Let any user of the node's, as the driver may be, connect to a socket; its directory is closed to user code."""
    # gVisor makes sockets that the machine sees, and then looks at none of them: their mode is the one they begin with.
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def _limits(config: agent_pb2.AgentConfig) -> Limits:
    # Of a container the runtime counts them, where the driver does not say otherwise.
    processes = config.max_processes or (0 if config.user_id else _PROCESSES)
    return Limits(processes, config.max_file_bytes, config.user_id)


def _engine(config: agent_pb2.AgentConfig, tools: Callable[[], Tools]) -> Engine:
    identity = Identity(config.sandbox_id, config.agent_token, VERSION)
    stated = config.HasField("finished_call_ttl")
    keeping = Keeping(seconds=config.finished_call_ttl.ToNanoseconds() / 1e9) if stated else Keeping()
    bound = config.call_timeout.ToNanoseconds() / 1e9 if config.HasField("call_timeout") else None
    return Engine(identity, config.fencing_token, tools, Held(keeping, disk=Disk(config.workspace), seconds=bound))


def _kernels(stack: AsyncExitStack, config: agent_pb2.AgentConfig, processes: Processes, memory: Memory) -> Kernels:
    """Have the default kernel made; the others are when they are asked for."""

    def make(language: str, cwd: str) -> Cells:
        if language == "python":
            return Cells(processes, partial(open_kernel, processes, cwd), memory)
        environment = dict(config.environment)
        return Cells(processes, partial(open_jupyter, processes, config.python, environment, language, cwd), memory)

    default = make("python", config.workspace)
    stack.push_async_callback(default.close)
    default.renew()
    kernels = Kernels(default, make, config.workspace)
    stack.push_async_callback(kernels.close)
    return kernels


def _tools(
    stack: AsyncExitStack,
    config: agent_pb2.AgentConfig,
    kernels: Kernels,
    shell: Shell,
    processes: Processes,
    made: asyncio.Future[None],
) -> Callable[[], Tools]:
    """Have the tools made by the first call, or soon; where they are still to be imported, by and by in a thread.

    `made` is done when they are.
    """
    opened: list[Any] = []

    async def close() -> None:
        for one in opened:
            await one.close()

    def make(*, whole: bool = False) -> Any:
        handlers = import_module("sandmeshd.agent.tools.handlers")
        confine = import_module("sandmeshd.agent.files.confinement")
        workspace = confine.Workspace(config.workspace, config.granted_paths)
        files = import_module("sandmeshd.agent.files.service").FileService(
            workspace, config.max_file_bytes, config.home
        )
        ports = import_module("sandmeshd.agent.network.exposed_ports").Exposures()
        own = import_module("sandmeshd.agent.tools.template_tools").OwnTools(
            config.own_tools, lambda: kernels.make("python", config.workspace)
        )
        services = {**files.services(), **ports.services(), **own.services()}
        opened.extend([import_module("sandmeshd.agent.mcp.manager.servers").make_servers(processes, config), own])
        runners = handlers.Runners(kernels, shell, opened[0])
        toolbox = handlers.make_toolbox(runners, workspace, config.tool_groups, services, whole=whole)
        # What was imported stays; collections need not look at it again.
        gc.freeze()
        # Calls that ended are kept in their thousands: to look through them after each few hundred new ones takes long.
        gc.set_threshold(20_000, 50, 100)
        _note(made)
        return toolbox

    stack.push_async_callback(close)
    if "sandmeshd.agent.tools.handlers" in sys.modules:
        give = cache(partial(make, whole=True))
        # One that waits in a pool has its tools before its first call.
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, give)
        return give
    late = Late(_STEPS, make)
    stack.callback(late.close)
    if "generic" not in config.tool_groups or config.own_tools or config.mcp_config:
        late.begin()
        return late.get
    stack.callback(asyncio.get_running_loop().call_later(_SOON_SECONDS, late.begin).cancel)
    early = Early(kernels.default.run, shell.run, late.get)
    return lambda: early


def _note(made: asyncio.Future[None]) -> None:
    """Have a future done, from any thread; where the loop has ended, nobody waits for it."""
    with suppress(RuntimeError):
        made.get_loop().call_soon_threadsafe(made.set_result, None)


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
        tls = import_module("sandmeshd.agent.link.tls").take_identity(config.tls_file)
        server = await loop.create_server(
            links, parts.hostname, parts.port or 0, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_SECONDS
        )
    else:
        raise OSError(f"the agent cannot listen at {config.listen!r}: give unix:///path, tcp://host:port or tls://...")
    stack.callback(server.close)
