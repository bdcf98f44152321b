"""`sandmesh network`: what a running sandbox may reach."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId
from sandmeshd.cli.terminal.output import print_json, print_table

if TYPE_CHECKING:
    from sandmesh.sandbox.network import NetworkState

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Change:
    """What is to change."""

    allow: Annotated[
        list[str] | None, typer.Option("--allow", help="A host to allow, or public; repeatable.", metavar="HOST")
    ] = None
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", help="A host to take out of the grant, or public; repeatable.", metavar="HOST"),
    ] = None
    replacement: Annotated[
        list[str] | None,
        typer.Option("--set", help="The whole grant: none, public, packages, or hosts; repeatable.", metavar="WHAT"),
    ] = None


@commands.command(
    epilog="Examples: sandmesh network sb_... | sandmesh network --allow example.org --deny pypi.org sb_... | "
    "sandmesh network --set none sb_..."
)
@grouped
def network(sandbox_id: SandboxId, connection: ConnectionOptions, change: Change, output: Output = Format.TEXT) -> None:
    """Print or change what a running sandbox may reach. Changes take effect immediately, for open connections too."""
    if change.replacement and (change.allow or change.deny):
        raise typer.BadParameter("--set replaces the whole grant: use it without --allow and --deny")
    state = run_command(_change(connection, sandbox_id, change))
    if output is Format.JSON:
        print_json(asdict(state))
        return
    words = (["public"] if state.grant.mode == "public" else []) + list(state.grant.hosts)
    typer.echo(f"may reach: {', '.join(words) or 'nothing'}{' (public addresses)' if state.grant.only_public else ''}")
    rows = [
        [host.host, str(host.connections), str(host.open_connections), str(host.sent_bytes), str(host.received_bytes)]
        for host in state.hosts
    ]
    if rows:
        print_table(("HOST", "CONNECTIONS", "OPEN", "SENT", "RECEIVED"), rows)


async def _change(connection: ConnectionOptions, sandbox_id: str, change: Change) -> NetworkState:
    async with connection.mesh() as mesh:
        of_sandbox = mesh.sandboxes.network(sandbox_id)
        if change.replacement:
            await of_sandbox.set(change.replacement)
        if change.allow:
            await of_sandbox.allow(*change.allow)
        if change.deny:
            await of_sandbox.deny(*change.deny)
        return await of_sandbox.show()
