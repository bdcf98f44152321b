"""The sync twins of kernels, processes, connections and exposed ports: each method wraps the async one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sandmesh._calls.feed import OutputEvent
from sandmesh._client.sync import BlockingIterator, Facade, blocking, blocking_iterator, blocking_twin, run
from sandmesh.events import Result
from sandmesh.sandbox.kernels import Forks, KernelAsync, KernelsAsync
from sandmesh.sandbox.mcp.connection import McpConnectionAsync
from sandmesh.sandbox.network import NetworkAsync, SandboxSecretsAsync
from sandmesh.sandbox.ports import ExposedPortAsync
from sandmesh.sandbox.processes import ProcessAsync, ProcessesAsync

P = ParamSpec("P")
F = TypeVar("F", bound=Facade)


def blocking_forks(
    facade: type[F], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Forks[Any]]]
) -> Callable[Concatenate[Any, P], Forks[F]]:
    """Make the sync method of an async twin's that returns forks which have a sync class too."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Forks[F]:
        forks = run(type(self.twin).__name__, method(self.twin, *args, **kwargs))
        return Forks([_wrapped(facade, twin) for twin in forks], forks.error, forks.not_copied)

    return call


def _wrapped(facade: type[F], twin: object) -> F:
    made = facade.__new__(facade)
    made.twin = twin
    return made


class Kernel(Facade):
    """A kernel of a sandbox: its cells run one after another, those of several kernels concurrently."""

    twin: KernelAsync

    @property
    def id(self) -> str:
        """Its id in the sandbox."""
        return self.twin.id

    @property
    def language(self) -> str:
        """The language of its code."""
        return self.twin.language

    run = blocking(KernelAsync.run)
    stream = blocking_iterator(KernelAsync.stream)
    interrupt = blocking(KernelAsync.interrupt)
    restart = blocking(KernelAsync.restart)
    delete = blocking(KernelAsync.delete)
    mark = blocking(KernelAsync.mark)
    rewind = blocking(KernelAsync.rewind)
    drop = blocking(KernelAsync.drop)

    def fork(self, count: int = 1, timeout: float | None = None) -> Forks[Kernel]:
        """Fork it into kernels with its variables and modules, as `KernelAsync.fork` does."""
        return _fork(self, count, timeout)


_fork = blocking_forks(Kernel, KernelAsync.fork)


class Kernels(Facade):
    """The kernels of a sandbox: `box.kernels`."""

    def __init__(self, twin: KernelsAsync) -> None:
        self.twin: KernelsAsync = twin

    create = blocking_twin(Kernel, KernelsAsync.create)
    fork = blocking_forks(Kernel, KernelsAsync.fork)
    get = blocking_twin(Kernel, KernelsAsync.get)
    list = blocking(KernelsAsync.list)


class Network(Facade):
    """The network of a running sandbox: `box.network`. A change takes effect immediately, for open connections too."""

    def __init__(self, twin: NetworkAsync) -> None:
        self.twin: NetworkAsync = twin

    show = blocking(NetworkAsync.show)
    allow = blocking(NetworkAsync.allow)
    deny = blocking(NetworkAsync.deny)
    set = blocking(NetworkAsync.set)


class SandboxSecrets(Facade):
    """The secrets of a running sandbox: `box.secrets`. Variables and hosts stay as the sandbox was made with them."""

    def __init__(self, twin: SandboxSecretsAsync) -> None:
        self.twin: SandboxSecretsAsync = twin

    list = blocking(SandboxSecretsAsync.list)
    set = blocking(SandboxSecretsAsync.set)
    remove = blocking(SandboxSecretsAsync.remove)


class McpConnection(Facade):
    """A client of a sandbox's MCP servers. Closing it disconnects; the servers stay."""

    twin: McpConnectionAsync

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self.twin.is_open

    request = blocking(McpConnectionAsync.request)
    close = blocking(McpConnectionAsync.aclose)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Disconnect."""
        self.close()


class Process(Facade):
    """A process of a sandbox, like subprocess.Popen.

    `for event in process` yields its output. A slow reader slows the process: it blocks once a window (1 MiB) of output
    is unread. Without a reader, the `wait` methods drop the oldest output and leave a Dropped.
    """

    twin: ProcessAsync

    @property
    def id(self) -> str:
        """The id that `box.processes.attach` takes."""
        return self.twin.id

    @property
    def pid(self) -> int | None:
        """The process id inside the sandbox; None if it was attached to after its Started event was discarded."""
        return self.twin.pid

    @property
    def command(self) -> str:
        """The command line."""
        return self.twin.command

    @property
    def result(self) -> Result | None:
        """The result; None while it runs."""
        return self.twin.result

    def __iter__(self) -> BlockingIterator[OutputEvent]:
        """Read its output."""
        return BlockingIterator(aiter(self.twin), "ProcessAsync")

    def __enter__(self) -> Self:
        """Return the process; the end of the block ends it."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """End the process if it still runs."""
        self._end()

    write = blocking(ProcessAsync.write)
    close_stdin = blocking(ProcessAsync.close_stdin)
    resize = blocking(ProcessAsync.resize)
    send_signal = blocking(ProcessAsync.send_signal)
    kill = blocking(ProcessAsync.kill)
    wait = blocking(ProcessAsync.wait)
    wait_for_exit = blocking(ProcessAsync.wait_for_exit)
    wait_for_log = blocking(ProcessAsync.wait_for_log)
    wait_for_port = blocking(ProcessAsync.wait_for_port)
    detach = blocking(ProcessAsync.detach)
    _end = blocking(ProcessAsync.__aexit__)


class Processes(Facade):
    """The processes of a sandbox: `box.processes`."""

    def __init__(self, twin: ProcessesAsync) -> None:
        self.twin: ProcessesAsync = twin

    start = blocking_twin(Process, ProcessesAsync.start)
    attach = blocking_twin(Process, ProcessesAsync.attach)
    list = blocking(ProcessesAsync.list)


class ExposedPort(Facade):
    """A port, or the browser, that a URL leads to until `expires`; anyone with the URL can use it."""

    def __init__(self, twin: ExposedPortAsync) -> None:
        self.twin: ExposedPortAsync = twin
        self.exposure_id = twin.exposure_id
        self.kind = twin.kind
        self.port = twin.port
        self.url = twin.url
        self.expires = twin.expires
        self.connections = twin.connections

    revoke = blocking(ExposedPortAsync.revoke)
