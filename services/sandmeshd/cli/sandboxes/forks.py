"""The command that forks a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.connection import CALL_SECONDS, ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import exit_code_of, print_error
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmesh.sandbox.boxes import SandboxAsync
    from sandmesh.sandbox.kernels import Forks

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh fork sb_... --count 8 | for id in $(sandmesh fork sb_...); do ...; done")
@grouped
def fork(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    count: Annotated[int, typer.Option(help="How many forks, at most 100.", metavar="N", min=1, max=100)] = 1,
    ttl: Annotated[
        float, typer.Option(help="How long the forks are kept, in seconds.", metavar="SECONDS", min=1)
    ] = 3600.0,
    kernels: Annotated[
        bool | None,
        typer.Option(
            "--kernels/--no-kernels",
            help="Require the state of its Python kernels, or copy files only; else kernels where possible.",
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Fork a sandbox into others and print their ids.

    They begin with its files and Python kernels, and are kept until their leases end; `sandmesh kill` deletes them.
    """
    forks = run_command(_fork(connection, sandbox_id, (count, ttl, kernels)))
    ids = [one.sandbox_id for one in forks]
    if output is Format.JSON:
        error = None if forks.error is None else forks.error.message
        print_json({"sandboxes": ids, "error": error, "not_copied": list(forks.not_copied)})
    else:
        for one in ids:
            typer.echo(one)
        for name in forks.not_copied:
            typer.echo(f"not copied: {name}", err=True)
    if forks.error is not None:
        print_error(forks.error)
        raise typer.Exit(exit_code_of(forks.error))


async def _fork(
    connection: ConnectionOptions, sandbox_id: str, wanted: tuple[int, float, bool | None]
) -> Forks[SandboxAsync]:
    count, ttl, kernels = wanted
    async with connection.sandbox(sandbox_id) as box:
        forks = await box.fork(count, CALL_SECONDS, kernels=kernels)
        for one in forks:
            # Not closed: that would release it.
            await one.renew(ttl)
        return forks
