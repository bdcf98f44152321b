"""Commands on the tokens of clients. A token's secret is printed once, when it is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from sandmesh.errors import TokenNotFound
from sandmesh.mesh import CreatedToken, TokenInfo
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Json, ListFormat, ListOutput, Output, parse_duration
from sandmeshd.cli.terminal.output import format_age, format_remaining, print_ids_or_json, print_json, print_table

Scope = Literal["user", "admin", "project-admin", "read-only", "sandbox"]
Form = Literal["mesh", "e2b"]

commands = typer.Typer(
    help="Manage the tokens that clients authenticate with; for administrators.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dataclass(frozen=True)
class Rights:
    """What a token allows, and whom."""

    scope: Annotated[
        Scope,
        typer.Option(
            help="What it allows: one user's resources, everything, one project's, reading only, or one sandbox."
        ),
    ] = "user"
    user: Annotated[
        str | None,
        typer.Option(
            help="The user that it authenticates; by default its name, for read-only everybody.", metavar="USER_ID"
        ),
    ] = None
    sandbox: Annotated[
        str | None,
        typer.Option(help="The one sandbox that it is for, with the scope sandbox.", metavar="SANDBOX_ID"),
    ] = None
    project: Annotated[
        str | None,
        typer.Option(help="The project that it is for, with the scope project-admin.", metavar="PROJECT"),
    ] = None
    private_network: Annotated[
        bool,
        typer.Option("--private-network", help="The sandboxes may be granted hosts that are not public."),
    ] = False
    expires: Annotated[
        str, typer.Option(help="How long it is valid, like 30d, 12h or 90m, or never to end.", metavar="TIME")
    ] = "90d"
    form: Annotated[Form, typer.Option(help="How its secret is written: as the mesh's own, or as a key of E2B.")] = (
        "mesh"
    )

    @property
    def seconds(self) -> int | None:
        """How long it is valid; None: without an end."""
        return None if self.expires == "never" else parse_duration(self.expires, "--expires", ", nor never")


@commands.command(
    epilog="Examples: sandmesh token create laptop --user ada | sandmesh token create ci --scope admin --expires 12h"
)
@grouped
def create(
    name: Annotated[str, typer.Argument(help="A name, unique among the tokens in force.", metavar="NAME")],
    connection: ConnectionOptions,
    rights: Rights,
    output: Output = Format.TEXT,
) -> None:
    """Create a token and print its secret, which is not shown again."""
    _check(rights)
    created = run_command(_create(connection, name, rights))
    if output is Format.JSON:
        print_json(created.to_json())
        return
    typer.echo(created.secret)
    taken = "E2B_API_KEY or api_key=..." if rights.form == "e2b" else "SANDMESH_TOKEN or bearer_token=..."
    typer.echo(f"It is not shown again. Clients take it as {taken}", err=True)


@commands.command(epilog="Examples: sandmesh token ls | sandmesh token ls --all -o json")
@grouped
def ls(
    connection: ConnectionOptions,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended in the last 30 days.")] = (
        False
    ),
    output: ListOutput = ListFormat.TABLE,
    as_json: Json = False,
) -> None:
    """List tokens, without their secrets."""
    tokens = run_command(_list(connection, everything))
    list_format = ListFormat.JSON if as_json else output
    if not print_ids_or_json(list_format, tokens, (token.token_id for token in tokens)):
        print_table(("TOKEN", "NAME", "SCOPE", "FOR", "AGE", "EXPIRES", "LAST USED"), [_row(token) for token in tokens])


@commands.command(epilog="Examples: sandmesh token revoke ada-laptop | sandmesh token revoke abcdefghij234567")
@grouped
def revoke(
    names: Annotated[list[str], typer.Argument(help="Names or ids of tokens.", metavar="TOKEN...")],
    connection: ConnectionOptions,
    output: Output = Format.TEXT,
) -> None:
    """Revoke tokens: requests with them are refused, and streams opened with them end within a second."""
    revoked = run_command(_revoke(connection, names))
    if output is Format.JSON:
        print_json([token.to_json() for token in revoked])
        return
    for token in revoked:
        typer.echo(f"{token.name} ({token.token_id}) is revoked")


def _check(rights: Rights) -> None:
    if rights.private_network and rights.scope not in ("user", "project-admin"):
        raise typer.BadParameter(
            f"--private-network is for the scopes user and project-admin, not for {rights.scope}: leave it out"
        )
    if rights.scope in ("admin", "sandbox", "project-admin") and rights.user is not None:
        raise typer.BadParameter(f"a token of the scope {rights.scope} belongs to no user: leave out --user")
    if rights.scope in ("sandbox", "project-admin") and rights.form != "mesh":
        raise typer.BadParameter("E2B's clients create their own sandboxes, for a user: leave out --form")
    if (rights.scope == "sandbox") != (rights.sandbox is not None):
        raise typer.BadParameter("--scope sandbox and --sandbox SANDBOX_ID belong together: give both, or neither")
    if (rights.scope == "project-admin") != (rights.project is not None):
        raise typer.BadParameter("--scope project-admin and --project PROJECT belong together: give both, or neither")


async def _create(connection: ConnectionOptions, name: str, rights: Rights) -> CreatedToken:
    async with connection.mesh() as mesh:
        if rights.sandbox is not None:
            return await mesh.tokens.create_for_sandbox(name, rights.sandbox, ttl=rights.seconds)
        if rights.project is not None:
            return await mesh.tokens.create_for_project(
                name, rights.project, ttl=rights.seconds, private_network=rights.private_network
            )
        return await mesh.tokens.create(
            name,
            scope=rights.scope,
            user_id=rights.user,
            ttl=rights.seconds,
            private_network=rights.private_network,
            form=rights.form,
        )


async def _list(connection: ConnectionOptions, everything: bool) -> list[TokenInfo]:
    async with connection.mesh() as mesh:
        return await mesh.tokens.list(include_ended=everything)


async def _revoke(connection: ConnectionOptions, names: list[str]) -> list[TokenInfo]:
    async with connection.mesh() as mesh:
        in_force = await mesh.tokens.list()
        # All names are resolved first: one that does not exist revokes nothing.
        return [await mesh.tokens.revoke(token) for token in [_find(name, in_force) for name in names]]


def _find(name: str, tokens: list[TokenInfo]) -> TokenInfo:
    found = next((token for token in tokens if name in (token.token_id, token.name)), None)
    if found is None:
        raise TokenNotFound(f"no token in force has the name or id {name!r}: see `sandmesh token ls`", {"name": name})
    return found


def _row(token: TokenInfo) -> tuple[str, ...]:
    last_used = "never" if token.last_used is None else format_age(token.last_used)
    return (
        token.token_id,
        token.name,
        token.scope,
        token.user_id or token.sandbox_id or token.project,
        format_age(token.created),
        _end(token),
        last_used,
    )


def _end(token: TokenInfo) -> str:
    if token.revoked is not None:
        return "revoked"
    if token.expires is None:
        return "never"
    remaining = format_remaining(token.expires)
    return "expired" if remaining == "0s" else remaining
