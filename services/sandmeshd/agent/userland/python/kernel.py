"""A kernel: the process, forked from the zygote, that runs cells."""

from __future__ import annotations

import builtins
import getpass
import io
import os
import select
import signal
import site
import socket
import sys
import warnings
from importlib import import_module, invalidate_caches
from typing import Any, NoReturn

from sandmeshd.agent.userland.core import launch, layer
from sandmeshd.agent.userland.python import kernel_protocol, output, shell

IDLE_SECONDS = 0.4
"""How long a kernel that is not warm waits for its first cell before it warms up."""
BUSY_SECONDS = 2.0
"""The same while its machine has no processor to spare, as when many sandboxes are created at once."""

_CELLS = {kernel_protocol.RUN, kernel_protocol.RUN_WITH_INPUT, kernel_protocol.WARM_UP}
_INPUT, _GETPASS = input, getpass.getpass
# signal.getsignal makes an enum of what is none, which takes ten times as long.
_handler_of: Any = import_module("_signal").getsignal


class Kernel:
    """The kernel that the zygote prepares and each fork then runs."""

    def __init__(self, *, warm: bool = True, later: bool = False) -> None:
        """Create it; one that is not warm answers sooner, and with `later` warms up when it is idle.

        What a kernel does for the first time after it was forked, it does in memory of its own.
        """
        self._running = False
        self._shell = shell.make_shell()
        # IPython lets go of old values by itself; nobody needs to hear of it.
        warnings.filterwarnings("ignore", message="Output cache limit")
        self._warm, self._later = False, later
        if warm:
            self.warm_up()

    def warm_up(self) -> None:
        """Run everything in the shell once."""
        if not self._warm:
            shell.warm_up(self._shell)
            self._warm = True

    def run_cells(self, request: dict[str, Any], fds: list[int]) -> NoReturn:
        """Turn this fresh child into a kernel and run cells until the agent exits."""
        os.setsid()
        launch.reset_signals()
        nothing = os.open(os.devnull, os.O_RDONLY)
        connection, *pipes = launch.settle([nothing, fds[1], fds[2]], fds)
        launch.be_limited(request["limits"])
        launch.allow_inspection()
        os.chdir(request["cwd"])
        sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        sys.argv = [""]
        _reseed()
        self._layer = _Layer()
        channel = output.Channel(socket.socket(fileno=connection))
        signal.signal(signal.SIGINT, self._interrupt)
        if not select.select([connection], [], [], 0)[0]:
            # What a fork shares is copied when it is first written: before the first cell, unless that is there.
            shell.exercise(self._shell, "1+1")
            if self._later:
                self._warm_up_when_idle(connection)
        self._shell.channel = channel
        streams = _Streams(channel, pipes)
        while True:
            self._serve(channel, streams)

    def _warm_up_when_idle(self, connection: int) -> None:
        """Warm up unless the first cell comes before; retry for as long as others want the processors."""
        patience = IDLE_SECONDS
        while not self._warm and not select.select([connection], [], [], patience)[0]:
            ran, waited = _account()
            shell.exercise(self._shell, "1+1")
            now_ran, now_waited = _account()
            if now_waited - waited > now_ran - ran:
                patience = BUSY_SECONDS
            else:
                self.warm_up()

    def _serve(self, channel: output.Channel, streams: _Streams) -> None:
        kind, payload, input_fd = channel.receive()
        if kind in _CELLS:
            if input_fd is not None or streams.has_input:
                streams.take(input_fd)
            error = self._run(payload.decode())
            flags = (kernel_protocol.FAILED if error else 0) | (kernel_protocol.LEAVES if self._shell.leaves else 0)
            report, self._shell.report = self._shell.report, b""
            channel.end(flags, _line(error) if error else "", report)
            if self._shell.leaves:
                os._exit(0)
            # After the answer, which need not wait for it.
            streams.mend()
        if kind == kernel_protocol.WARM_UP:
            self._forget(channel)

    def _forget(self, channel: output.Channel) -> None:
        """Restore the state before the first cell; to warm up, where that was left for later, there was time."""
        self._shell.channel = output.NoChannel()
        if self._later:
            self.warm_up()
        shell.forget(self._shell)
        self._shell.channel = channel

    def _run(self, code: str) -> BaseException | None:
        """Run a cell and return what it raised."""
        self._layer.refresh()
        try:
            # The last cell may have set its own; asking is ten times faster than setting.
            if _handler_of(signal.SIGINT) != self._interrupt:
                signal.signal(signal.SIGINT, self._interrupt)
            self._running = True
            try:
                result = self._shell.run_cell(code, store_history=True)
            finally:
                self._running = False
        except KeyboardInterrupt as interrupt:
            # It came while IPython was between the code and the result.
            return interrupt
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        return error

    def _interrupt(self, number: int, frame: object) -> None:
        """Take a SIGINT: between cells there is nothing to interrupt."""
        if self._running:
            raise KeyboardInterrupt


def _account() -> tuple[int, int]:
    """Return the nanoseconds that this process ran on a processor, and that it waited for one."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123 - pathlib is a slow import
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        # gVisor keeps none.
        return 0, 0
    return int(ran), int(waited)


def _reseed() -> None:
    """Reseed random numbers in this process: others were forked from the same one."""
    generator = sys.modules.get("random")
    if generator is not None:
        generator.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _line(error: BaseException) -> str:
    try:
        said = str(error).partition("\n")[0]
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class _Layer:
    """The layer of packages as a kernel sees it: what is installed while it runs can be imported in the next cell."""

    def __init__(self) -> None:
        """Make it and put it before the template's packages."""
        layer.make(os.environ)
        root = os.environ.get("VIRTUAL_ENV", "")
        self._packages = f"{root}/{layer.PACKAGES}"
        try:
            self._seen = os.stat(self._packages).st_mtime_ns  # noqa: PTH116 - pathlib is a slow import, here and below
        except OSError:
            self._seen = 0
        if self._seen and root != sys.prefix:
            # What runs `sys.executable -m pip`, as %pip does, means the layer.
            sys.executable = f"{root}/bin/python"
            at = next((n for n, path in enumerate(sys.path) if path.endswith("site-packages")), len(sys.path))
            sys.path.insert(at, self._packages)
            if os.listdir(self._packages) != [layer.TEMPLATE]:  # noqa: PTH208
                site.addsitedir(self._packages)

    def refresh(self) -> None:
        """Take note of what was installed or removed since the last time."""
        try:
            seen = os.stat(self._packages).st_mtime_ns  # noqa: PTH116
        except OSError:
            seen = 0
        if seen != self._seen:
            self._seen = seen
            site.addsitedir(self._packages)
            invalidate_caches()


class _Streams:
    """Descriptors 0 to 2 and sys's streams, restored after each cell."""

    def __init__(self, channel: output.Channel, pipes: list[int]) -> None:
        self.has_input = False
        """Whether descriptor 0 is a cell's input."""
        self._channel = channel
        # By descriptor: user code may close or replace 1 and 2.
        self._pipes = {fd: (pipe, os.fstat(pipe)) for fd, pipe in enumerate(pipes, start=1)}
        self._input: io.TextIOBase = output.NoInput()
        sys.stdin = self._input
        self._open()

    def mend(self) -> None:
        """Undo what a cell did to the streams."""
        for fd, (pipe, status) in self._pipes.items():
            try:
                replaced = not os.path.samestat(os.fstat(fd), status)
            except OSError:
                replaced = True
            if replaced:
                os.dup2(pipe, fd)
        if sys.stdout is not self._out or sys.stderr is not self._err or self._out.closed or self._err.closed:
            self._open()
        sys.stdin = self._input

    def take(self, input_fd: int | None) -> None:
        """Install the descriptor of a cell's input, or none after one that had it."""
        source = os.open(os.devnull, os.O_RDONLY) if input_fd is None else input_fd
        os.dup2(source, 0)
        os.close(source)
        self.has_input = input_fd is not None
        reader = io.TextIOWrapper(io.FileIO(0, "r", closefd=False)) if self.has_input else output.NoInput()
        sys.stdin = self._input = reader
        builtins.input = self._ask if self.has_input else _INPUT
        getpass.getpass = self._ask_password if self.has_input else _GETPASS

    def _open(self) -> None:
        sys.stdout = self._out = output.open_stream(1, self._channel)
        sys.stderr = self._err = output.open_stream(2, self._channel)

    def _ask(self, prompt: object = "", /) -> str:
        return self._channel.ask(str(prompt), password=False)

    def _ask_password(self, prompt: object = "Password: ", *_: object, **__: object) -> str:
        return self._channel.ask(str(prompt), password=True)
