"""`sandmesh stats`: what a sandbox uses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId

if TYPE_CHECKING:
    from sandmesh.results import SandboxStats

commands = typer.Typer(rich_markup_mode=None)

_SECONDS = 60.0
_ROW = "{:<8} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>5}"
_HEAD = ("TIME", "CPU", "CPU TIME", "MEMORY", "DISK", "SENT", "RECEIVED", "PROCS")


@commands.command(epilog="Examples: sandmesh stats sb_... | sandmesh stats --watch sb_... -o json")
@grouped
def stats(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print a line again and again.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.5, max=3600, help="Seconds between two lines of --watch.", metavar="SECONDS")
    ] = 2.0,
    output: Output = Format.TEXT,
) -> None:
    """Print what a sandbox uses: processor, memory, disk, network, processes; -o json has samples since it was asked.

    CPU is processors in use on average since the line before; "-" is what its driver does not count, or what took too
    long to count. Each line counts as a use of the sandbox.
    """
    run_command(_print(connection, sandbox_id, interval if watch else None, output))


async def _print(connection: ConnectionOptions, sandbox_id: str, interval: float | None, output: Format) -> None:
    if output is Format.TEXT:
        typer.echo(_ROW.format(*_HEAD))
    async with connection.sandbox(sandbox_id, _SECONDS) as box:
        while True:
            found = await box.stats()
            typer.echo(_line(found) if output is Format.TEXT else _json(found, whole=interval is None))
            if interval is None:
                return
            await asyncio.sleep(interval)


def _line(found: SandboxStats) -> str:
    sizes = (found.memory_bytes, found.disk_bytes, found.sent_bytes, found.received_bytes)
    time = found.time.astimezone().strftime("%H:%M:%S")
    return _ROW.format(time, f"{found.cpu:.2f}", f"{found.cpu_seconds:.1f} s", *map(_size, sizes), found.processes)


def _size(count: int | None) -> str:
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _json(found: SandboxStats, *, whole: bool) -> str:
    """Return JSON; lines of --watch have no history."""
    values = asdict(found)
    if not whole:
        del values["history"]
    return json.dumps(values, default=lambda time: time.isoformat())
