"""Carries this process's terminal, or its standard input and output, to a process in a sandbox."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import threading
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress

from sandmesh import Output, ProcessAsync, SandboxAsync
from sandmesh.errors import CallFinished, SandmeshError, WrongState
from sandmeshd.cli.run.output_copy import STDERR, STDOUT, exit_code, write

STDIN = 0
SHELL = "if command -v bash >/dev/null; then exec bash; else exec sh; fi"


def is_terminal() -> bool:
    """Say whether a person sits at both ends of this process."""
    return os.isatty(STDIN) and os.isatty(STDOUT)


async def attach(box: SandboxAsync, command: str | list[str], *, terminal: bool) -> int:
    """Run a program with this process's input and output as its own; give its exit code.

    With `terminal` it gets a terminal of the same size as ours, which passes every key on until the program ends.
    """
    async with box:
        size = _size() if terminal else None
        async with await box.processes.start(command, pty=size, env=_terminal_type() if terminal else None) as process:
            with _raw(terminal), _following_size(process, terminal):
                _Typing(process).start()
                async for event in process:
                    if isinstance(event, Output):
                        write(STDOUT if event.stream == "stdout" else STDERR, event.data)
            return exit_code(await process.wait())


def _size() -> tuple[int, int]:
    columns, rows = os.get_terminal_size(STDIN)
    return max(rows, 1), max(columns, 1)


def _terminal_type() -> dict[str, str]:
    return {"TERM": os.environ.get("TERM", "xterm-256color")}


@contextmanager
def _raw(terminal: bool) -> Generator[None]:
    """Pass keys on as they are typed; the terminal is as it was when the block ends."""
    if not terminal:
        yield
        return
    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def _following_size(process: ProcessAsync, terminal: bool) -> Generator[None]:
    loop = asyncio.get_running_loop()
    resizing: set[asyncio.Task[None]] = set()

    def changed() -> None:
        task = loop.create_task(_resize(process))
        resizing.add(task)
        task.add_done_callback(resizing.discard)

    if terminal:
        loop.add_signal_handler(signal.SIGWINCH, changed)
    try:
        yield
    finally:
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)


async def _resize(process: ProcessAsync) -> None:
    # One that is late finds the process ended, or the mesh away: the next one tells.
    with suppress(SandmeshError):
        await process.resize(*_size())


class _Typing:
    """Reads standard input in a thread, as files cannot be waited for, and writes it to the process."""

    def __init__(self, process: ProcessAsync) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        threading.Thread(target=self._read, name="typing", daemon=True).start()

    def _read(self) -> None:
        # The loop may be closed by the time that somebody types.
        with suppress(OSError, RuntimeError, asyncio.CancelledError, CallFinished, WrongState):
            while data := os.read(STDIN, 1 << 16):
                asyncio.run_coroutine_threadsafe(self._process.write(data), self._loop).result()
            asyncio.run_coroutine_threadsafe(self._process.close_stdin(), self._loop).result()
