"""Commands on tokens: what clients show to a mesh. The secret of one is printed once, when it is made."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from google.protobuf.duration_pb2 import Duration

from sandmesh._client.connection import Connection
from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.errors import TokenNotFound
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import SECONDS, connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Form, Json, Output, Shape, read_span
from sandmeshd.cli.terminal.output import age, plain, print_json, print_table, until_then

commands = typer.Typer(
    help="Tokens: what clients show to a mesh. For its administrators.", no_args_is_help=True, rich_markup_mode=None
)


@commands.command(
    epilog="Examples: sandmesh token create laptop --user ada | sandmesh token create ci --scope admin --expires 12h"
)
@grouped
def create(
    name: Annotated[str, typer.Argument(help="What it is for; unique among those in force.", metavar="NAME")],
    where: Where,
    scope: Annotated[
        Literal["user", "admin"], typer.Option(help="What it allows: one user's sessions, or everything.")
    ] = "user",
    user: Annotated[
        str | None, typer.Option(help="The user that it stands for; by default its name.", metavar="USER_ID")
    ] = None,
    expires: Annotated[
        str, typer.Option(help="When it ends: a time like 30d, 12h or 90m, or never.", metavar="TIME")
    ] = "90d",
    output: Answer = Shape.TEXT,
) -> None:
    """Make a token and print its secret, which is not shown again."""
    if scope == "admin" and user is not None:
        raise typer.BadParameter("a token of the scope admin stands for no user: leave out --user")
    request = pb.CreateTokenRequest(name=name, ttl=_span(expires))
    request.scope = pb.SCOPE_ADMIN if scope == "admin" else pb.SCOPE_USER
    request.user_id = "" if scope == "admin" else user or name
    made = run_to_end(_created(where, request))
    if output is Shape.JSON:
        print_json(plain(made))
        return
    typer.echo(made.secret)
    typer.echo("It is not shown again. Clients take it as SANDMESH_TOKEN or bearer_token=...", err=True)


@commands.command(epilog="Examples: sandmesh token ls | sandmesh token ls --all -o json")
@grouped
def ls(
    where: Where,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those too that ended in the last 30 days.")] = False,
    output: Output = Form.TABLE,
    as_json: Json = False,
) -> None:
    """List tokens, without their secrets."""
    found = run_to_end(_listed(where, everything))
    form = Form.JSON if as_json else output
    if form is Form.JSON:
        print_json([plain(one) for one in found])
    elif form is Form.ID:
        for one in found:
            typer.echo(one.token_id)
    else:
        print_table(("TOKEN", "NAME", "SCOPE", "USER", "AGE", "EXPIRES", "LAST USED"), [_row(one) for one in found])


@commands.command(epilog="Examples: sandmesh token revoke ada-laptop | sandmesh token revoke abcdefghij234567")
@grouped
def revoke(
    names: Annotated[list[str], typer.Argument(help="Names or ids of tokens.", metavar="TOKEN...")],
    where: Where,
    output: Answer = Shape.TEXT,
) -> None:
    """Revoke tokens: nobody comes in with them any more, and who is in is put out within a second."""
    revoked = run_to_end(_revoked(where, names))
    if output is Shape.JSON:
        print_json([plain(one) for one in revoked])
        return
    for one in revoked:
        typer.echo(f"{one.name} ({one.token_id}) is revoked")


async def _created(where: Where, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
    async with connected(where) as mesh:
        return await mesh.ask(lambda stubs: stubs.tokens.CreateToken, request, SECONDS)


async def _listed(where: Where, everything: bool) -> list[pb.Token]:
    async with connected(where) as mesh:
        return await _all(mesh, everything)


async def _all(mesh: Connection, everything: bool) -> list[pb.Token]:
    request = pb.ListTokensRequest(include_ended=everything)
    return list((await mesh.ask(lambda stubs: stubs.tokens.ListTokens, request, SECONDS)).tokens)


async def _revoked(where: Where, names: list[str]) -> list[pb.Token]:
    revoked: list[pb.Token] = []
    async with connected(where) as mesh:
        known = await _all(mesh, everything=False)
        for token_id in [_id_of(name, known) for name in names]:
            request = pb.RevokeTokenRequest(token_id=token_id)
            revoked.append((await mesh.ask(lambda stubs: stubs.tokens.RevokeToken, request, SECONDS)).token)
    return revoked


def _id_of(name: str, known: list[pb.Token]) -> str:
    found = next((one.token_id for one in known if name in (one.token_id, one.name)), None)
    if found is None:
        raise TokenNotFound(f"no token in force has the name or id {name!r}: see `sandmesh token ls`", {"name": name})
    return found


def _row(token: pb.Token) -> tuple[str, ...]:
    scope = pb.Scope.Name(token.scope).removeprefix("SCOPE_").lower()
    used = age(token.last_use_time) if token.HasField("last_use_time") else "never"
    return token.token_id, token.name, scope, token.user_id, age(token.create_time), _end(token), used


def _end(token: pb.Token) -> str:
    if token.HasField("revoke_time"):
        return "revoked"
    if not token.HasField("expire_time"):
        return "never"
    left = until_then(token.expire_time)
    return "expired" if left == "0s" else left


def _span(text: str) -> Duration | None:
    return None if text == "never" else Duration(seconds=read_span(text, "--expires", ", nor never"))
