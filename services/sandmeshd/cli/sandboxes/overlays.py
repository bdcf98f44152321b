"""Commands on overlays of sandboxes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmesh.results import FileDifference

overlay_commands = typer.Typer(
    help="Try changes of files in an overlay of a sandbox, and commit or discard them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_SIGNS = {"added": "+", "changed": "~", "removed": "-"}


@overlay_commands.command(
    epilog="Example: branch=$(sandmesh overlay create sb_...); sandmesh exec $branch -- make; sandmesh overlay commit "
    "$branch"
)
@grouped
def create(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    ttl: Annotated[
        float, typer.Option(help="How long the overlay is kept, in seconds.", metavar="SECONDS", min=1)
    ] = 3600.0,
    output: Output = Format.TEXT,
) -> None:
    """Create an overlay of a sandbox's files and print its id. It is a sandbox, which ends with its lease."""
    made = run_command(_create(connection, sandbox_id, ttl))
    if output is Format.JSON:
        print_json({"sandbox_id": made, "base": sandbox_id})
    else:
        typer.echo(made)


@overlay_commands.command(epilog="Example: sandmesh overlay diff sb_...")
@grouped
def diff(overlay_id: SandboxId, connection: ConnectionOptions, output: Output = Format.TEXT) -> None:
    """Print what an overlay has added (+), changed (~) and removed (-) in its workspace."""
    _print(run_command(_diff(connection, overlay_id)), output)


@overlay_commands.command(epilog="Example: sandmesh overlay commit sb_...")
@grouped
def commit(
    overlay_id: SandboxId,
    connection: ConnectionOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what the other sandbox has changed in the same places.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Apply an overlay's changes to the sandbox that it was made of, all or none, and print them. The overlay stays."""
    _print(run_command(_commit(connection, overlay_id, force=force)), output)


@overlay_commands.command(epilog="Example: sandmesh overlay discard sb_...")
@grouped
def discard(overlay_id: SandboxId, connection: ConnectionOptions, output: Output = Format.TEXT) -> None:
    """Delete an overlay with what was not committed."""
    run_command(_discard(connection, overlay_id))
    if output is Format.JSON:
        print_json({"sandbox_id": overlay_id})


def _print(changes: list[FileDifference], output: Format) -> None:
    if output is Format.JSON:
        print_json([asdict(change) for change in changes])
        return
    for change in changes:
        typer.echo(f"{_SIGNS[change.change]} {change.path}{'/' if change.type == 'directory' else ''}")


async def _create(connection: ConnectionOptions, sandbox_id: str, ttl: float) -> str:
    async with connection.sandbox(sandbox_id) as box:
        # Not closed: that would release it.
        made = await box.overlay().start()
        await made.renew(ttl)
        return made.sandbox_id


async def _diff(connection: ConnectionOptions, overlay_id: str) -> list[FileDifference]:
    async with connection.sandbox(overlay_id) as box:
        return await box.diff()


async def _commit(connection: ConnectionOptions, overlay_id: str, *, force: bool) -> list[FileDifference]:
    async with connection.sandbox(overlay_id) as box:
        return await box.commit(force=force)


async def _discard(connection: ConnectionOptions, overlay_id: str) -> None:
    async with connection.sandbox(overlay_id) as box:
        await box.discard()
