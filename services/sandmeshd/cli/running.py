"""Commands that run something in a sandbox: their exit code is that of what ran."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterable
from typing import Annotated

import typer

from sandmesh import CallEvent, ContentBlock, Output, Result, SandboxAsync
from sandmeshd.cli.lifetime import told_to_end

INTERRUPTED = 130
TIMED_OUT = 124

Address = Annotated[str | None, typer.Option("--base-url", help="The mesh; none: this user's own, else a private one.")]
Template = Annotated[str, typer.Option("--template", "-t", help="What the sandbox is made from.")]
Timeout = Annotated[float, typer.Option(help="Seconds until what runs is ended.")]
Environment = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; repeatable.")]
Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")]


def run(
    command: Command,
    template: Template = "base",
    env: Environment = None,
    timeout: Timeout = 3000,
    base_url: Address = None,
) -> None:
    """Run a command in a sandbox of its own, and give the sandbox back when it ends."""
    box = SandboxAsync(sandbox_type=template, timeout=timeout, base_url=base_url, env=variables(env))
    raise typer.Exit(asyncio.run(_run(box, "run_shell_command", shlex.join(command))))


def exec_(
    sandbox_id: Annotated[str, typer.Argument(help="The sandbox.")],
    command: Command,
    timeout: Timeout = 3000,
    base_url: Address = None,
) -> None:
    """Run a command in a sandbox that is there."""
    box = SandboxAsync(sandbox_id, timeout=timeout, base_url=base_url)
    raise typer.Exit(asyncio.run(_run(box, "run_shell_command", shlex.join(command))))


def python(
    code: Annotated[str, typer.Argument(help="Python code; - reads it from standard input.")],
    template: Template = "base",
    timeout: Timeout = 3000,
    base_url: Address = None,
) -> None:
    """Run Python code in a sandbox of its own."""
    text = sys.stdin.read() if code == "-" else code
    box = SandboxAsync(sandbox_type=template, timeout=timeout, base_url=base_url)
    raise typer.Exit(asyncio.run(_run(box, "run_ipython_cell", text)))


def variables(entries: list[str] | None) -> dict[str, str]:
    """Read NAME=VALUE entries."""
    read: dict[str, str] = {}
    for entry in entries or ():
        name, found, value = entry.partition("=")
        if not name or not found:
            raise typer.BadParameter(f"{entry!r} is not NAME=VALUE")
        read[name] = value
    return read


async def _run(box: SandboxAsync, tool: str, text: str) -> int:
    parameter = "command" if tool == "run_shell_command" else "code"
    async with told_to_end() as ended, box:
        copying = asyncio.create_task(copy_output(box.stream(tool, **{parameter: text})))
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([copying, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not copying.done():
            copying.cancel()
            await asyncio.wait([copying])
            return INTERRUPTED
        return copying.result()


async def copy_output(events: AsyncIterable[CallEvent]) -> int:
    """Write a call's output to this process's own as it comes; give the exit code it stands for."""
    async for event in events:
        if isinstance(event, Output):
            _write(sys.stdout if event.stream == "stdout" else sys.stderr, event.data)
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


def _show_block(block: dict[str, object]) -> None:
    if block.get("type") == "text":
        text = str(block.get("text", ""))
        typer.echo(text, nl=not text.endswith("\n"), err=block.get("description") == "stderr")
    else:
        typer.echo(f"[{block.get('type')} {block.get('mimeType', '')}]", err=True)


def _write(stream: object, data: bytes) -> None:
    descriptor = 1 if stream is sys.stdout else 2
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
