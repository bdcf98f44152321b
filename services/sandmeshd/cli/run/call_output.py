"""Copies the output of a call to this process's own, and returns its exit code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Coroutine
from typing import Any

import typer

from sandmesh import CallEvent, ContentBlock, Output, Result
from sandmesh.errors import SandmeshError
from sandmeshd.cli.terminal.exit_codes import NOT_RUN, TIMED_OUT, print_error
from sandmeshd.cli.terminal.lifetime import run_command

STDIN, STDOUT, STDERR = 0, 1, 2


def run_for_exit_code(work: Coroutine[Any, Any, int]) -> int:
    """Run a program in a sandbox and return its exit code; errors of the mesh are printed and have a separate one."""
    try:
        return run_command(work)
    except SandmeshError as error:
        print_error(error)
        return NOT_RUN


async def copy_output(events: AsyncIterable[CallEvent]) -> int:
    """Write a call's output to this process's own as it arrives, and return its exit code."""
    async for event in events:
        if isinstance(event, Output):
            write_output(event)
        elif isinstance(event, ContentBlock):
            _write_block(event.block)
        elif isinstance(event, Result):
            return exit_code_of(event)
    return 1


def exit_code_of(result: Result) -> int:
    """Return the exit code that a shell would: the process's own, 128 and its signal, 124 for a timeout."""
    if result.reason == "TIMED_OUT":
        typer.echo(result.message or "it exceeded its time limit", err=True)
        return TIMED_OUT
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return 128 + result.signal
    return int(result.is_error)


def write_output(output: Output) -> None:
    """Write output to the stream of the same name."""
    write_all(STDOUT if output.stream == "stdout" else STDERR, output.data)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _write_block(block: dict[str, object]) -> None:
    if block.get("type") != "text":
        write_all(STDERR, f"[{block.get('type')} {block.get('mimeType', '')}]\n".encode())
        return
    text = str(block.get("text", ""))
    if text:
        descriptor = STDERR if block.get("description") == "stderr" else STDOUT
        write_all(descriptor, f"{text.removesuffix(chr(10))}\n".encode())
