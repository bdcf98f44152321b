"""Runs a program in a sandbox with this process's input, output, signals and exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import typer

from sandmesh import Output, ProcessAsync, Result, SandboxAsync
from sandmesh.errors import CallFinished, DeadlineExceeded, SandmeshError, WrongState
from sandmeshd.cli.run.call_output import STDIN, exit_code_of, write_output
from sandmeshd.cli.terminal.exit_codes import TIMED_OUT

# As a shell does for a program that does not exist or cannot be run.
NOT_EXECUTABLE = 127
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
CHUNK_BYTES = 1 << 16


async def run_process(
    box: SandboxAsync, command: Sequence[str], timeout: float | None, *, stdin: bool, entrypoint: bool = False
) -> int:
    """Run a program in an open sandbox and return its exit code; a cancellation ends the program.

    With `entrypoint` the command is arguments of the program that the sandbox's image names.
    """
    try:
        started = await box.processes.start(list(command), timeout=timeout, entrypoint=entrypoint)
    except DeadlineExceeded as error:
        typer.echo(f"it was not started within its time limit: {error}", err=True)
        return TIMED_OUT
    async with started as process:
        with _forwarded_signals(process):
            if stdin:
                forward_stdin(process)
            else:
                await process.close_stdin()
            async for event in process:
                if isinstance(event, Output):
                    write_output(event)
                else:
                    typer.echo(f"[{event.bytes} bytes of output were dropped]", err=True)
        return _exit_code_of(await process.wait())


def _exit_code_of(result: Result) -> int:
    if result.reason in {"OUT_OF_MEMORY", "SANDBOX_LOST"}:
        typer.echo(result.message, err=True)
    if result.reason == "EXITED" and result.exit_code is None and result.signal is None:
        typer.echo(result.message, err=True)
        return NOT_EXECUTABLE
    return exit_code_of(result)


def has_input() -> bool:
    """Return whether standard input is a pipe or a file rather than a terminal."""
    try:
        return not os.isatty(STDIN)
    except OSError:
        return False


def forward_stdin(process: ProcessAsync) -> None:
    """Write standard input to a process, from a thread that ends with the input or with this process."""
    # A thread, as an event loop cannot wait for files.
    loop = asyncio.get_running_loop()
    threading.Thread(target=_copy_stdin, args=(process, loop), name="stdin", daemon=True).start()


def _copy_stdin(process: ProcessAsync, loop: asyncio.AbstractEventLoop) -> None:
    # The loop may be closed by the time that input arrives.
    with suppress(OSError, RuntimeError, asyncio.CancelledError, CallFinished, WrongState):
        while data := os.read(STDIN, CHUNK_BYTES):
            asyncio.run_coroutine_threadsafe(process.write(data), loop).result()
        asyncio.run_coroutine_threadsafe(process.close_stdin(), loop).result()


@contextmanager
def _forwarded_signals(process: ProcessAsync) -> Generator[None]:
    """Forward each signal of this process; the second of one kind ends both processes.

    Raises:
        Exit: A second one came: the code is 128 and its number.
    """
    loop, main_task = asyncio.get_running_loop(), asyncio.current_task()
    seen, repeated = set[int](), list[int]()
    tasks: set[asyncio.Task[None]] = set()

    def handle(number: int) -> None:
        if number not in seen:
            seen.add(number)
            task = loop.create_task(_send(process, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        elif main_task is not None and not repeated:
            repeated.append(number)
            main_task.cancel()

    for number in FORWARDED:
        loop.add_signal_handler(number, handle, int(number))
    try:
        yield
    except asyncio.CancelledError:
        if not repeated:
            raise
        raise typer.Exit(128 + repeated[0]) from None
    finally:
        # From now on another signal ends this process immediately.
        for number in FORWARDED:
            loop.remove_signal_handler(number)


async def _send(process: ProcessAsync, number: int) -> None:
    with suppress(SandmeshError):  # the process has ended, and its result follows
        await process.send_signal(number)
