"""A kernel: the process, forked from the zygote, that runs cells."""

from __future__ import annotations

import bdb
import builtins
import getpass
import io
import os
import select
import signal
import socket
import sys
import warnings
from typing import Any, NoReturn

from sandmeshd.agent.userland.core import isolation, launch
from sandmeshd.agent.userland.python import (
    adaptations,
    event_loop,
    forks,
    home,
    import_hooks,
    kernel_protocol,
    output,
    shell,
)
from sandmeshd.agent.userland.python.memory import restore as memory_restore

IDLE_SECONDS = 0.4
"""How long a kernel that is not warm waits for its first cell before it warms up."""
BUSY_SECONDS = 2.0
"""The same while its machine has no processor to spare, as when many sandboxes are created together."""

_INPUT = input


class ForkedKernel:
    """The kernel that the zygote prepares and each fork then runs."""

    def __init__(self, *, warm: bool = True, later: bool = False) -> None:
        """Create it; one that is not warm answers sooner, and with `later` warms up when it is idle.

        What a kernel does for the first time after it was forked, it does in its own memory.
        """
        self._shell = shell.make_shell()
        self._loop = event_loop.KernelLoop()
        self._shell.loop_runner = self._loop.run
        event_loop.install()
        # IPython lets go of old values by itself; users need not hear of it.
        warnings.filterwarnings("ignore", message="Output cache limit")
        self._warm, self._later = False, later
        if warm:
            self.warm_up()

    def warm_up(self) -> None:
        """Run everything in the shell once."""
        if not self._warm:
            shell.warm_up(self._shell)
            self._warm = True

    def move_home(self) -> None:
        """Use the home that the environment names, where it is another than when this was created."""
        home.move(self._shell)

    def run_cells(self, request: dict[str, Any], fds: list[int]) -> NoReturn:
        """Turn this fresh child into a kernel and run cells until the agent exits."""
        os.setsid()
        launch.reset_signals()
        nothing = os.open(os.devnull, os.O_RDONLY)
        connection, *pipes = launch.settle([nothing, fds[1], fds[2]], fds)
        launch.be_limited(request["limits"])
        launch.allow_inspection()
        if request.get("continues"):
            _continue_from(pipes.pop(), [connection, *pipes], request["environment"])
        os.chdir(isolation.path_at_home(request["cwd"]))
        self.serve(output.KernelSocket(socket.socket(fileno=connection)), pipes)

    def serve(self, channel: output.KernelSocket, pipes: list[int], packages: str | None = None) -> NoReturn:
        """Run cells until the agent exits.

        Args:
            channel: The connection to it.
            pipes: Descriptors of the output and the errors.
            packages: The virtual environment of the sandbox's own layer of packages; None: as VIRTUAL_ENV says.
        """
        # What the shell found when it was made is the home of no user.
        self._shell.home_dir = os.environ["HOME"]
        sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        sys.argv = [""]
        forks.reseed()
        self._packages = import_hooks.InstalledPackages({"VIRTUAL_ENV": packages} if packages else os.environ)
        import_hooks.Adaptations(dict(adaptations.ADAPTATIONS))
        signal.signal(signal.SIGINT, _ignore)
        if not channel.has_frame and not select.select([channel.fd], [], [], 0)[0]:
            # What a fork shares is copied when it is first written: before the first cell, unless that is there.
            shell.exercise(self._shell, "1+1")
            if self._later:
                self._warm_up_when_idle(channel.fd)
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

    def _serve(self, channel: output.KernelSocket, streams: _Streams) -> None:
        if not channel.has_frame:
            self._loop.wait(channel.fd)
        kind, payload, input_fd = channel.receive()
        if kind == kernel_protocol.FORK and input_fd is not None:
            self._fork(input_fd, channel, streams)
        if kind in kernel_protocol.CELLS:
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
            shell.end_debugger()
        if kind == kernel_protocol.WARM_UP:
            self._forget(channel)

    def _fork(self, control: int, channel: output.KernelSocket, streams: _Streams) -> None:
        """Fork the kernels that the agent requests on a socket; a fork becomes a kernel here."""
        output.flush()
        own = {0, 1, 2, channel.fd, *streams.descriptors}
        fork = forks.serve(control, own, self._loop.loop)
        if fork is not None:
            connection, *pipes = fork.fds
            channel.move(connection)
            streams.move(pipes)
            self._loop.abandon()
            fork.detach({channel.fd, *streams.descriptors})
            channel.report_fork()

    def _forget(self, channel: output.KernelSocket) -> None:
        """Restore the state before the first cell; to warm up, where that was left for later, there was time."""
        self._shell.channel = output.NoChannel()
        if self._later:
            self.warm_up()
        shell.forget(self._shell)
        self._shell.channel = channel

    def _run(self, code: str) -> BaseException | None:
        """Run a cell and return what it raised."""
        self._packages.refresh()
        try:
            try:
                # Set for each cell: the last one may have set its own.
                event_loop.set_handler(signal.SIGINT, signal.default_int_handler)
                self._loop.enter()
                result = self._shell.run_cell(code, store_history=True)
            finally:
                event_loop.set_handler(signal.SIGINT, _ignore)
                self._loop.leave()
        except KeyboardInterrupt as interrupt:
            # It came while IPython was between the code and the result.
            event_loop.set_handler(signal.SIGINT, _ignore)
            self._loop.leave()
            return interrupt
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        return error


def _continue_from(image: int, kept: list[int], environment: dict[str, str]) -> NoReturn:
    """Become the kernel whose memory an image has; it returns from `forks.serve` there."""
    try:
        memory_restore.MemoryRestore(image).run(kept, {"environment": environment})
    except (OSError, ValueError, KeyError, TypeError) as error:
        os.write(2, f"the kernel could not be continued: {error}\n".encode())
    os._exit(70)


def _ignore(number: int, frame: object) -> None:
    """Take a SIGINT between cells, where there is nothing to interrupt; programs do not inherit that."""


def _account() -> tuple[int, int]:
    """Return the nanoseconds that this process ran on a processor, and that it waited for one."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123 - pathlib is a slow import
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        # gVisor keeps none.
        return 0, 0
    return int(ran), int(waited)


def _line(error: BaseException) -> str:
    try:
        # The place of a syntax error, which Python appends, is in what was shown.
        said = str(error.msg if isinstance(error, SyntaxError) else error).partition("\n")[0]
    except Exception:
        said = ""
    if isinstance(error, bdb.BdbQuit):
        said = f"the debugger was left. {output.INPUT_HINT}"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _refuse_password(*_: object, **__: object) -> str:
    """Refuse to read a password, which no terminal and no reader gives.

    Raises:
        EOFError: Always.
    """
    return output.NoInput().readline()


class _Streams:
    """Descriptors 0 to 2 and sys's streams, restored after each cell."""

    def __init__(self, channel: output.KernelSocket, pipes: list[int]) -> None:
        self.has_input = False
        """Whether descriptor 0 is a cell's input."""
        self._channel = channel
        # By descriptor: user code may close or replace 1 and 2.
        self._pipes = {fd: (pipe, os.fstat(pipe)) for fd, pipe in enumerate(pipes, start=1)}
        self._input: io.TextIOBase = output.NoInput()
        sys.stdin = self._input
        getpass.getpass = _refuse_password
        self._open()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that restore 1 and 2."""
        return [pipe for pipe, _ in self._pipes.values()]

    def move(self, pipes: list[int]) -> None:
        """Continue on other pipes and without input, in a fork of this process."""
        for fd, pipe in enumerate(pipes, start=1):
            kept, _ = self._pipes[fd]
            os.dup2(pipe, kept, inheritable=False)
            os.close(pipe)
            self._pipes[fd] = kept, os.fstat(kept)
        self.take(None)
        self.mend()

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
        getpass.getpass = self._ask_password if self.has_input else _refuse_password

    def _open(self) -> None:
        sys.stdout = self._out = output.open_stream(1, self._channel)
        sys.stderr = self._err = output.open_stream(2, self._channel)

    def _ask(self, prompt: object = "", /) -> str:
        return self._channel.ask(str(prompt), password=False)

    def _ask_password(self, prompt: object = "Password: ", *_: object, **__: object) -> str:
        return self._channel.ask(str(prompt), password=True)
