"""What the parts of a mesh wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated

import typer

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import NotFound
from sandmeshd.cli.run.output_copy import STDOUT, write
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import SECONDS, connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, SandboxId, Shape

commands = typer.Typer(rich_markup_mode=None)

Show = Callable[[pb.GetSandboxLogsResponse], None]

PAUSE_SECONDS = 0.3
LARGEST_TAIL = 1 << 20


@commands.command(epilog="Examples: sandmesh logs sb_... | sandmesh logs -f sb_... | sandmesh logs --tail 10000 sb_...")
@grouped
def logs(
    sandbox_id: SandboxId,
    where: Where,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the sandbox ends.")] = False,
    tail: Annotated[int, typer.Option(min=1, max=LARGEST_TAIL, help="From the end.", metavar="BYTES")] = 64 * 1024,
    output: Answer = Shape.TEXT,
) -> None:
    """Print what a sandbox's agent and runtime wrote; output of calls is not in it. JSON lines with -o json."""
    request = pb.GetSandboxLogsRequest(sandbox_id=sandbox_id, tail_bytes=tail)
    run_to_end(_printed(where, request, follow, _print_json if output is Shape.JSON else _print))


async def _printed(where: Where, request: pb.GetSandboxLogsRequest, follow: bool, show: Show) -> None:
    async with connected(where) as mesh:
        request.after_offset = await _more(mesh, request, show)
        request.tail_bytes = LARGEST_TAIL
        while follow:
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                request.after_offset = await _more(mesh, request, show)
            except NotFound:
                return


async def _more(mesh: Connection, request: pb.GetSandboxLogsRequest, show: Show) -> int:
    answer = await mesh.ask(lambda stubs: stubs.sandboxes.GetSandboxLogs, request, SECONDS)
    if answer.data:
        show(answer)
    return answer.end_offset


def _print(answer: pb.GetSandboxLogsResponse) -> None:
    write(STDOUT, answer.data)


def _print_json(answer: pb.GetSandboxLogsResponse) -> None:
    text = answer.data.decode(errors="replace")
    typer.echo(json.dumps({"text": text, "end_offset": answer.end_offset}, ensure_ascii=False))
