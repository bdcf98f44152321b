"""Runs a tool in a sandbox with its output copied as it comes; the exit code is that of what ran."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable

import typer

from sandmesh import CallEvent, ContentBlock, Output, Result, SandboxAsync
from sandmeshd.cli.terminal.exit_codes import TIMED_OUT

STDOUT, STDERR = 1, 2


async def run_tool(box: SandboxAsync, tool: str, **arguments: object) -> int:
    """Run a tool and give its exit code; a cancellation cancels the call in the sandbox."""
    async with box.stream(tool, **arguments) as events:
        return await copy_output(events)


async def copy_output(events: AsyncIterable[CallEvent]) -> int:
    """Write a call's output to this process's own as it comes; give the exit code it stands for."""
    async for event in events:
        if isinstance(event, Output):
            write(STDOUT if event.stream == "stdout" else STDERR, event.data)
        elif isinstance(event, ContentBlock):
            _show_block(event.block)
        elif isinstance(event, Result):
            return exit_code(event)
    return 1


def exit_code(result: Result) -> int:
    """Give the exit code that a shell would: the process's own, 128 and the signal, 124 for a time-out."""
    if result.reason == "TIMED_OUT":
        typer.echo(result.message or "it ran out of time", err=True)
        return TIMED_OUT
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return 128 + result.signal
    return int(result.is_error)


def write(descriptor: int, data: bytes) -> None:
    """Write all bytes as they are."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _show_block(block: dict[str, object]) -> None:
    if block.get("type") == "text":
        text = str(block.get("text", ""))
        if text:
            write(
                STDERR if block.get("description") == "stderr" else STDOUT, f"{text.removesuffix(chr(10))}\n".encode()
            )
    else:
        write(STDERR, f"[{block.get('type')} {block.get('mimeType', '')}]\n".encode())
