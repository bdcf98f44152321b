"""`sandmesh logs`: what the agent and runtime of a sandbox wrote."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sandmesh.mesh import LogChunk
from sandmeshd.cli.run.call_output import STDOUT, write_all
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId

commands = typer.Typer(rich_markup_mode=None)

LARGEST_TAIL = 1 << 20


@commands.command(epilog="Examples: sandmesh logs sb_... | sandmesh logs -f sb_... | sandmesh logs --tail 10000 sb_...")
@grouped
def logs(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the sandbox is deleted.")] = False,
    tail: Annotated[int, typer.Option(min=1, max=LARGEST_TAIL, help="How much of the end.", metavar="BYTES")] = 64
    * 1024,
    output: Output = Format.TEXT,
) -> None:
    """Print the log of a sandbox's agent and runtime, without the output of calls. JSON lines with -o json."""
    run_command(_print_logs(connection, sandbox_id, tail, follow, output))


async def _print_logs(connection: ConnectionOptions, sandbox_id: str, tail: int, follow: bool, output: Format) -> None:
    async with connection.mesh() as mesh:
        if not follow:
            _print(await mesh.sandboxes.logs(sandbox_id, tail_bytes=tail), output)
            return
        async for chunk in mesh.sandboxes.follow_logs(sandbox_id, tail_bytes=tail):
            _print(chunk, output)


def _print(chunk: LogChunk, output: Format) -> None:
    if output is Format.TEXT:
        write_all(STDOUT, chunk.data)
    elif chunk.data:
        text = chunk.data.decode(errors="replace")
        typer.echo(json.dumps({"text": text, "end_offset": chunk.end_offset}, ensure_ascii=False))
