"""Commands on the URLs of sandboxes' ports."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.mesh import PortInfo
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, ListFormat, ListOutput, Output, SandboxId, parse_duration
from sandmeshd.cli.terminal.output import format_remaining, print_ids_or_json, print_json, print_table

commands = typer.Typer(rich_markup_mode=None)
port_commands = typer.Typer(
    help="Manage the URLs of sandboxes' ports, as `sandmesh expose` creates them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Port = Annotated[
    int, typer.Argument(min=1, max=65535, help="The port, as programs in the sandbox listen on it.", metavar="PORT")
]
Readonly = Annotated[bool, typer.Option("--readonly", help="View only: the URL does not allow taking over.")]
Ttl = Annotated[str, typer.Option(help="How long the URL is valid, like 90s, 10m or 12h; at most 30d.", metavar="TIME")]


@commands.command(epilog="Examples: sandmesh expose sb_... 8000 | sandmesh expose --expires 10m sb_... 3000")
@grouped
def expose(
    sandbox_id: SandboxId,
    port: Port,
    connection: ConnectionOptions,
    expires: Annotated[
        str, typer.Option(help="How long the URL is valid, like 90s, 10m or 12h; at most 30d.", metavar="TIME")
    ] = "1h",
    output: Output = Format.TEXT,
) -> None:
    """Print a URL that carries HTTP and WebSocket to a port of a sandbox. Anyone who has it may use it."""
    seconds = parse_duration(expires, "--expires")
    exposed = run_command(_expose(connection, sandbox_id, port, seconds))
    _print_exposed(sandbox_id, exposed, output)


@commands.command(epilog="Examples: sandmesh desktop sb_... | sandmesh desktop --readonly --ttl 10m sb_...")
@grouped
def desktop(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    readonly: Readonly = False,
    ttl: Ttl = "1h",
    output: Output = Format.TEXT,
) -> None:
    """Print the URL of a page that shows a sandbox's desktop. Anyone who has it may watch, and take over."""
    seconds = parse_duration(ttl, "--ttl")
    exposed = run_command(_show("desktop", connection, sandbox_id, readonly, seconds))
    _print_exposed(sandbox_id, exposed, output)


@commands.command(epilog="Examples: sandmesh browser sb_... | sandmesh browser --readonly --ttl 10m sb_...")
@grouped
def browser(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    readonly: Readonly = False,
    ttl: Ttl = "1h",
    output: Output = Format.TEXT,
) -> None:
    """Print the URL of a page that shows what a sandbox's browser shows. Anyone who has it may watch, and take over."""
    seconds = parse_duration(ttl, "--ttl")
    exposed = run_command(_show("browser", connection, sandbox_id, readonly, seconds))
    _print_exposed(sandbox_id, exposed, output)


@commands.command(epilog="Examples: sandmesh mobile sb_... | sandmesh mobile --readonly --ttl 10m sb_...")
@grouped
def mobile(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    readonly: Readonly = False,
    ttl: Ttl = "1h",
    output: Output = Format.TEXT,
) -> None:
    """Print the URL of a page that shows a sandbox's Android device. Anyone who has it may watch, and take over."""
    seconds = parse_duration(ttl, "--ttl")
    exposed = run_command(_show("mobile", connection, sandbox_id, readonly, seconds))
    _print_exposed(sandbox_id, exposed, output)


def _print_exposed(sandbox_id: str, exposed: PortInfo, output: Format) -> None:
    if output is Format.JSON:
        print_json(exposed.to_json())
        return
    typer.echo(exposed.url)
    remaining = format_remaining(exposed.expires)
    typer.echo(
        f"It expires in {remaining}, or ends with `sandmesh ports close {sandbox_id} {exposed.exposure_id}` "
        "or with the sandbox.",
        err=True,
    )


@port_commands.command(name="ls", epilog="Examples: sandmesh ports ls sb_... | sandmesh ports ls -o json sb_...")
@grouped
def list_ports(sandbox_id: SandboxId, connection: ConnectionOptions, output: ListOutput = ListFormat.TABLE) -> None:
    """List the URLs of a sandbox's ports."""
    ports = run_command(_list(connection, sandbox_id))
    if not print_ids_or_json(output, ports, (port.exposure_id for port in ports)):
        rows = [
            [
                port.exposure_id,
                str(port.port or port.kind),
                format_remaining(port.expires),
                str(port.connections),
                port.url,
            ]
            for port in ports
        ]
        print_table(("EXPOSURE", "PORT", "ENDS IN", "CONNECTIONS", "URL"), rows)


@port_commands.command(epilog="Examples: sandmesh ports close sb_... $(sandmesh ports ls -o id sb_...)")
@grouped
def close(
    sandbox_id: SandboxId,
    exposure_ids: Annotated[
        list[str], typer.Argument(help="The ids that `sandmesh ports ls` prints.", metavar="EXPOSURE...")
    ],
    connection: ConnectionOptions,
    output: Output = Format.TEXT,
) -> None:
    """Revoke URLs and close the connections through them; one that has ended already is not an error."""
    run_command(_revoke(connection, sandbox_id, exposure_ids))
    if output is Format.JSON:
        print_json({"exposure_ids": exposure_ids})


async def _expose(connection: ConnectionOptions, sandbox_id: str, port: int, seconds: int) -> PortInfo:
    async with connection.mesh() as mesh:
        return await mesh.ports.expose(sandbox_id, port, ttl=seconds)


async def _show(what: str, connection: ConnectionOptions, sandbox_id: str, readonly: bool, seconds: int) -> PortInfo:
    async with connection.mesh() as mesh:
        shows = {
            "desktop": mesh.ports.show_desktop,
            "browser": mesh.ports.show_browser,
            "mobile": mesh.ports.show_mobile,
        }
        return await shows[what](sandbox_id, readonly=readonly, ttl=seconds)


async def _list(connection: ConnectionOptions, sandbox_id: str) -> list[PortInfo]:
    async with connection.mesh() as mesh:
        return await mesh.ports.list(sandbox_id)


async def _revoke(connection: ConnectionOptions, sandbox_id: str, exposure_ids: list[str]) -> None:
    async with connection.mesh() as mesh:
        for exposure_id in exposure_ids:
            await mesh.ports.revoke(sandbox_id, exposure_id)
