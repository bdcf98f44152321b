"""Commands on the secrets that a mesh stores."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmesh.mesh import SecretChange, SecretInfo
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Json, ListFormat, ListOutput, Output
from sandmeshd.cli.terminal.output import print_ids_or_json, print_json, print_table

User = Annotated[
    str,
    typer.Option(help="Whose it is; for administrators. Else the mesh's own.", metavar="USER_ID", show_default=False),
]
Name = Annotated[str, typer.Argument(help="The secret.", metavar="NAME")]

commands = typer.Typer(
    help="Manage secrets, which sandboxes use without having them.", no_args_is_help=True, rich_markup_mode=None
)


@commands.command(
    "set",
    epilog="Examples: sandmesh secret set OPENAI_API_KEY --host api.openai.com | "
    "pass show github | sandmesh secret set GITHUB_TOKEN --host api.github.com --host github.com",
)
@grouped
def set_value(
    name: Name,
    connection: ConnectionOptions,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host that may get it; by default those that it has.", metavar="HOST", show_default=False),
    ] = None,
    value_file: Annotated[
        Path | None,
        typer.Option(help="A file with the value; by default it is asked for, or read from a pipe.", metavar="FILE"),
    ] = None,
    user: User = "",
    output: Output = Format.TEXT,
) -> None:
    """Set a secret; the next requests of sandboxes that use it get the new value."""
    change = run_command(_set(connection, name, _read_value(name, value_file), host, user))
    if output is Format.JSON:
        outdated, withdrawn = list(change.outdated_sandbox_ids), list(change.withdrawn_sandbox_ids)
        ids = {"sandbox_ids": list(change.sandbox_ids), "outdated_sandbox_ids": outdated}
        print_json({"secret": change.secret.to_json(), **ids, "withdrawn_sandbox_ids": withdrawn})
        return
    typer.echo(f"{name}: for {', '.join(change.secret.hosts)}; in force in {len(change.sandbox_ids)} running sandboxes")
    for sandbox_id in change.outdated_sandbox_ids:
        typer.echo(f"{sandbox_id} has the former value: its node does not answer", err=True)
    for sandbox_id in change.withdrawn_sandbox_ids:
        typer.echo(f"{sandbox_id} has hosts that the secret is not for: its requests get no value any more", err=True)


@commands.command("ls", epilog="Examples: sandmesh secret ls | sandmesh secret ls -o json")
@grouped
def list_secrets(connection: ConnectionOptions, output: ListOutput = ListFormat.TABLE, as_json: Json = False) -> None:
    """List secrets: names, hosts and times, never values."""
    secrets = run_command(_list(connection))
    list_format = ListFormat.JSON if as_json else output
    if not print_ids_or_json(list_format, secrets, (secret.name for secret in secrets)):
        print_table(("NAME", "HOSTS", "USER", "CREATED", "SET"), [_row(secret) for secret in secrets])


@commands.command("rm", epilog="Example: sandmesh secret rm OPENAI_API_KEY")
@grouped
def remove(name: Name, connection: ConnectionOptions, user: User = "", output: Output = Format.TEXT) -> None:
    """Forget a secret; requests of running sandboxes that use it are refused."""
    sandbox_ids = run_command(_remove(connection, name, user))
    if output is Format.JSON:
        print_json({"name": name, "sandbox_ids": sandbox_ids})
        return
    typer.echo(f"{name} is forgotten; {len(sandbox_ids)} running sandboxes used it")


def _read_value(name: str, file: Path | None) -> str:
    # An argument would be in the history of the shell and in the list of processes.
    if file is not None:
        try:
            return file.read_text().strip("\n\r")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{file} cannot be read: {error}", {"argument": "value_file"}) from None
    if sys.stdin.isatty():
        return getpass(f"{name}: ")
    return sys.stdin.read().strip("\n\r")


async def _set(
    connection: ConnectionOptions, name: str, value: str, hosts: list[str] | None, user: str
) -> SecretChange:
    async with connection.mesh() as mesh:
        return await mesh.secrets.set(name, value, hosts, user_id=user)


async def _list(connection: ConnectionOptions) -> list[SecretInfo]:
    async with connection.mesh() as mesh:
        return await mesh.secrets.list()


async def _remove(connection: ConnectionOptions, name: str, user: str) -> list[str]:
    async with connection.mesh() as mesh:
        return await mesh.secrets.remove(name, user_id=user)


def _row(secret: SecretInfo) -> tuple[str, ...]:
    created, updated = (time.isoformat(timespec="seconds") for time in (secret.created, secret.updated))
    return secret.name, ", ".join(secret.hosts), secret.user_id or "-", created, updated
