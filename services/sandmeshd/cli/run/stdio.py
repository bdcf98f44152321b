"""Runs a program in a sandbox as if it ran here: its input, output, signals and exit code are this process's own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import typer

from sandmesh import Output, ProcessAsync, Result, SandboxAsync
from sandmesh.errors import CallFinished, SandmeshError, WrongState
from sandmeshd.cli.run.output_copy import STDERR, STDOUT, exit_code, write

STDIN = 0
# What a shell gives for a program that is not there or cannot be run.
NOT_FOUND_INSIDE = 127
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


async def carry(box: SandboxAsync, command: Sequence[str], timeout: float | None, *, stdin: bool) -> int:
    """Run a program in an open sandbox and give its exit code; leaving early ends it."""
    async with await box.processes.start(list(command), timeout=timeout) as process:
        with _signals_passed(process):
            if stdin:
                _Input(process).start()
            else:
                await process.close_stdin()
            async for event in process:
                if isinstance(event, Output):
                    write(STDOUT if event.stream == "stdout" else STDERR, event.data)
                else:
                    typer.echo(f"[{event.bytes} bytes of output were dropped]", err=True)
        return _code(await process.wait())


def _code(result: Result) -> int:
    if result.reason in {"OUT_OF_MEMORY", "SANDBOX_LOST"}:
        typer.echo(result.message, err=True)
    if result.reason == "EXITED" and result.exit_code is None and result.signal is None:
        typer.echo(result.message, err=True)
        return NOT_FOUND_INSIDE
    return exit_code(result)


def has_input() -> bool:
    """Say whether standard input is a pipe or a file, and not a person's keyboard."""
    try:
        return not os.isatty(STDIN)
    except OSError:
        return False


@contextmanager
def _signals_passed(process: ProcessAsync) -> Generator[None]:
    """Send on each signal that this process gets; the second of one kind ends the work here, and so there.

    Raises:
        Exit: A second one came: the code is 128 and its number.
    """
    loop, working = asyncio.get_running_loop(), asyncio.current_task()
    seen, repeated = set[int](), list[int]()
    sending: set[asyncio.Task[None]] = set()

    def take(number: int) -> None:
        if number not in seen:
            seen.add(number)
            task = loop.create_task(_send(process, number))
            sending.add(task)
            task.add_done_callback(sending.discard)
        elif working is not None and not repeated:
            repeated.append(number)
            working.cancel()

    for number in PASSED:
        loop.add_signal_handler(number, take, int(number))
    try:
        yield
    except asyncio.CancelledError:
        if not repeated:
            raise
        raise typer.Exit(128 + repeated[0]) from None
    finally:
        # From now on one more ends this process at once.
        for number in PASSED:
            loop.remove_signal_handler(number)


async def _send(process: ProcessAsync, number: int) -> None:
    with suppress(SandmeshError):  # it has ended, and the result comes
        await process.send_signal(number)


class _Input:
    """Reads standard input in a thread, as files cannot be waited for, and writes it to the process."""

    def __init__(self, process: ProcessAsync) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin; the thread ends with the input or with this process."""
        threading.Thread(target=self._read, name="input", daemon=True).start()

    def _read(self) -> None:
        # The loop may be closed by the time that somebody writes.
        with suppress(OSError, RuntimeError, asyncio.CancelledError, CallFinished, WrongState):
            while data := os.read(STDIN, 1 << 16):
                asyncio.run_coroutine_threadsafe(self._process.write(data), self._loop).result()
            asyncio.run_coroutine_threadsafe(self._process.close_stdin(), self._loop).result()
