"""Attaches this process's terminal, or its standard input and output, to a process in a sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sandmesh import Output, ProcessAsync, SandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.cli.run.call_output import STDIN, STDOUT, exit_code_of, write_output
from sandmeshd.cli.run.stdio import forward_stdin

SHELL = "if command -v bash >/dev/null; then exec bash; else exec sh; fi"


def is_terminal() -> bool:
    """Return whether standard input and output are a terminal."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


async def attach(box: SandboxAsync, command: str | list[str], *, terminal: bool) -> int:
    """Run a program with this process's input and output, and return its exit code.

    With `terminal` it has a terminal of the same size as this process's, which forwards every key until it ends.
    """
    async with box:
        return await attach_open(box, command, terminal=terminal)


async def attach_open(box: SandboxAsync, command: str | list[str], *, terminal: bool) -> int:
    """Run a program as `attach` does, in a sandbox that is already open."""
    size = _terminal_size() if terminal else None
    env = {"TERM": os.environ.get("TERM", "xterm-256color")} if terminal else None
    async with await box.processes.start(command, pty=size, env=env) as process:
        with _raw_mode(terminal), _forwarded_size(process, terminal):
            forward_stdin(process)
            async for event in process:
                if isinstance(event, Output):
                    write_output(event)
        return exit_code_of(await process.wait())


def _terminal_size() -> tuple[int, int]:
    columns, rows = os.get_terminal_size(STDIN)
    return max(rows, 1), max(columns, 1)


@contextmanager
def _raw_mode(terminal: bool) -> Generator[None]:
    """Set the terminal to raw mode, and restore it when the block ends."""
    if not terminal:
        yield
        return
    attributes = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, attributes)


@contextmanager
def _forwarded_size(process: ProcessAsync, terminal: bool) -> Generator[None]:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def handle() -> None:
        task = loop.create_task(_resize(process))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if terminal:
        loop.add_signal_handler(signal.SIGWINCH, handle)
    try:
        yield
    finally:
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


async def _resize(process: ProcessAsync) -> None:
    # Where the process has ended or the mesh is away, the next change of size is sent again.
    with suppress(SandmeshError):
        await process.resize(*_terminal_size())
