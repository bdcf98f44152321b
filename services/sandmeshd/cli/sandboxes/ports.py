"""Commands on ports of sandboxes that URLs lead to."""

from __future__ import annotations

from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.port.v1 import port_pb2 as pb
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import SECONDS, connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Form, Output, SandboxId, Shape, read_span
from sandmeshd.cli.terminal.output import plain, print_json, print_table, until_then

commands = typer.Typer(rich_markup_mode=None)
port_commands = typer.Typer(
    help="URLs that lead to ports of sandboxes: what `sandmesh expose` made.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Port = Annotated[int, typer.Argument(min=1, max=65535, help="As programs in the sandbox listen at it.", metavar="PORT")]


@commands.command(epilog="Examples: sandmesh expose sb_... 8000 | sandmesh expose --expires 10m sb_... 3000")
@grouped
def expose(
    sandbox_id: SandboxId,
    port: Port,
    where: Where,
    expires: Annotated[
        str, typer.Option(help="When the URL ends: a time like 90s, 10m or 12h, at most 30d.", metavar="TIME")
    ] = "1h",
    output: Answer = Shape.TEXT,
) -> None:
    """Print a URL that carries HTTP and WebSocket to a port of a sandbox. Whoever has it may use it."""
    ttl = Duration(seconds=read_span(expires, "--expires"))
    made = run_to_end(_exposed(where, pb.ExposePortRequest(sandbox_id=sandbox_id, port=port, ttl=ttl)))
    if output is Shape.JSON:
        print_json(plain(made))
        return
    typer.echo(made.url)
    left = until_then(made.expire_time)
    typer.echo(
        f"It ends in {left}, with `sandmesh ports close {sandbox_id} {made.exposure_id}`, or with the sandbox.",
        err=True,
    )


@port_commands.command(name="ls", epilog="Examples: sandmesh ports ls sb_... | sandmesh ports ls -o json sb_...")
@grouped
def list_ports(sandbox_id: SandboxId, where: Where, output: Output = Form.TABLE) -> None:
    """List a sandbox's URLs that are good now."""
    ports = run_to_end(_listed(where, sandbox_id))
    if output is Form.JSON:
        print_json([plain(port) for port in ports])
    elif output is Form.ID:
        typer.echo("".join(f"{port.exposure_id}\n" for port in ports), nl=False)
    else:
        rows = [
            [port.exposure_id, str(port.port), until_then(port.expire_time), str(port.connections), port.url]
            for port in ports
        ]
        print_table(("EXPOSURE", "PORT", "ENDS IN", "CONNECTIONS", "URL"), rows)


@port_commands.command(epilog="Examples: sandmesh ports close sb_... $(sandmesh ports ls -o id sb_...)")
@grouped
def close(
    sandbox_id: SandboxId,
    exposure_ids: Annotated[
        list[str], typer.Argument(help="As `sandmesh ports ls` names them.", metavar="EXPOSURE...")
    ],
    where: Where,
    output: Answer = Shape.TEXT,
) -> None:
    """End URLs, and the connections through them; one that has ended stays so."""
    run_to_end(_closed(where, sandbox_id, exposure_ids))
    if output is Shape.JSON:
        print_json({"exposure_ids": exposure_ids})


async def _exposed(where: Where, request: pb.ExposePortRequest) -> pb.ExposedPort:
    async with connected(where) as mesh:
        return (await mesh.ask(lambda stubs: stubs.ports.ExposePort, request, SECONDS)).port


async def _listed(where: Where, sandbox_id: str) -> list[pb.ExposedPort]:
    request = pb.ListExposedPortsRequest(sandbox_id=sandbox_id)
    async with connected(where) as mesh:
        return list((await mesh.ask(lambda stubs: stubs.ports.ListExposedPorts, request, SECONDS)).ports)


async def _closed(where: Where, sandbox_id: str, exposure_ids: list[str]) -> None:
    async with connected(where) as mesh:
        for exposure_id in exposure_ids:
            request = pb.RevokePortRequest(sandbox_id=sandbox_id, exposure_id=exposure_id)
            await mesh.ask(lambda stubs: stubs.ports.RevokePort, request, SECONDS)
