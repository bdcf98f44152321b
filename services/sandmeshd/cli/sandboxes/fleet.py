"""Commands on the sandboxes that a mesh has: list, inspect and end them."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.cli.terminal.completion import complete_sandboxes
from sandmeshd.cli.terminal.exit_codes import code_of, explain
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import SECONDS, connected
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Form, Json, Label, Output, SandboxId, Shape, pairs
from sandmeshd.cli.terminal.output import age, leaves, plain, print_json, print_table, until_then

commands = typer.Typer(rich_markup_mode=None)

NEARLY_GONE = frozenset({pb.SANDBOX_STATE_STOPPING, pb.SANDBOX_STATE_GONE, pb.SANDBOX_STATE_FAILED})


@commands.command(
    epilog="Examples: sandmesh ls --label team=red | sandmesh ls -o json | sandmesh kill $(sandmesh ls -o id)"
)
@grouped
def ls(
    where: Where,
    label: Label = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Those too that are being removed, failed, or wait in a pool.")
    ] = False,
    output: Output = Form.TABLE,
    as_json: Json = False,
) -> None:
    """List sandboxes."""
    request = pb.ListSandboxesRequest(labels=pairs(label, "KEY=VALUE"), page_size=1000)
    found = [one for one in run_to_end(_listed(where, request)) if everything or _in_use(one)]
    form = Form.JSON if as_json else output
    if form is Form.JSON:
        print_json([plain(one) for one in found])
    elif form is Form.ID:
        for one in found:
            typer.echo(one.sandbox_id)
    else:
        _print(found, wide=form is Form.WIDE)


@commands.command(epilog="Example: sandmesh inspect sb_... | jq .enforced")
@grouped
def inspect(sandbox_id: SandboxId, where: Where, output: Answer = Shape.JSON) -> None:
    """Print a sandbox's record: its state, lease, limits and what enforces them."""
    found = plain(run_to_end(_got(where, sandbox_id)))
    if output is Shape.JSON:
        print_json(found)
    else:
        print_table(("FIELD", "VALUE"), list(leaves(found)))


@commands.command(epilog="Examples: sandmesh kill sb_... | sandmesh kill --label team=red | sandmesh kill --all")
@grouped
def kill(
    where: Where,
    sandbox_ids: Annotated[
        list[str] | None,
        typer.Argument(help="Sandboxes to end.", metavar="[SANDBOX]...", autocompletion=complete_sandboxes),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox in use that you may end.")] = False,
    label: Label = None,
    output: Answer = Shape.TEXT,
) -> None:
    """End sandboxes, whoever holds them, and remove what is in them."""
    if bool(sandbox_ids) + everything + bool(label) != 1:
        raise typer.BadParameter("say which: ids of sandboxes, or --label KEY=VALUE, or --all")
    killed, error = run_to_end(_killed(where, sandbox_ids, pairs(label, "KEY=VALUE")))
    if output is Shape.JSON:
        print_json({"sandbox_ids": killed})
    else:
        for sandbox_id in killed:
            typer.echo(f"{sandbox_id} is being removed")
    if error is not None:
        raise typer.Exit(code_of(error))


async def _listed(where: Where, request: pb.ListSandboxesRequest) -> list[pb.Sandbox]:
    async with connected(where) as mesh:
        return await list_all(mesh, request)


async def _got(where: Where, sandbox_id: str) -> pb.Sandbox:
    async with connected(where) as mesh:
        return await get(mesh, sandbox_id)


async def _killed(
    where: Where, sandbox_ids: list[str] | None, labels: dict[str, str]
) -> tuple[list[str], SandmeshError | None]:
    """Kill every one that can be, and give those and the last error."""
    killed: list[str] = []
    error: SandmeshError | None = None
    async with connected(where) as mesh:
        if not sandbox_ids:
            listed = await list_all(mesh, pb.ListSandboxesRequest(labels=labels, page_size=1000))
            sandbox_ids = [one.sandbox_id for one in listed if _in_use(one)]
        for sandbox_id in sandbox_ids:
            try:
                await kill_one(mesh, sandbox_id)
            except SandmeshError as failure:
                error = failure
                explain(failure)
            else:
                killed.append(sandbox_id)
    return killed, error


async def list_all(mesh: Connection, request: pb.ListSandboxesRequest) -> list[pb.Sandbox]:
    """Give every page of a listing."""
    found: list[pb.Sandbox] = []
    while True:
        page = await mesh.ask(lambda stubs: stubs.sandboxes.ListSandboxes, request, SECONDS)
        found += page.sandboxes
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def get(mesh: Connection, sandbox_id: str) -> pb.Sandbox:
    """Give a sandbox's record.

    Raises:
        SandboxNotFound: There is none.
    """
    request = pb.GetSandboxRequest(sandbox_id=sandbox_id)
    return (await mesh.ask(lambda stubs: stubs.sandboxes.GetSandbox, request, SECONDS)).sandbox


async def kill_one(mesh: Connection, sandbox_id: str) -> None:
    """Have a sandbox removed, whoever holds it.

    Raises:
        SandboxNotFound: There is none.
    """
    token = (await get(mesh, sandbox_id)).lease.fencing_token
    request = pb.ReleaseSandboxRequest(sandbox_id=sandbox_id, fencing_token=token)
    await mesh.ask(lambda stubs: stubs.sandboxes.ReleaseSandbox, request, SECONDS)


def _in_use(one: pb.Sandbox) -> bool:
    return one.state not in NEARLY_GONE and one.HasField("lease")


def _print(found: list[pb.Sandbox], *, wide: bool) -> None:
    headings = ["SANDBOX", "TEMPLATE", "STATE", "AGE", "LEASE ENDS", "LABELS"]
    rows = [_row(one) for one in found]
    if wide:
        headings += ["DRIVER", "NODE", "SESSION", "SLOT", "REASON"]
        extra = ([one.driver, one.node_id, one.session_key, one.slot, one.state_reason] for one in found)
        rows = [[*row, *more] for row, more in zip(rows, extra, strict=True)]
    print_table(headings, rows)


def _row(one: pb.Sandbox) -> list[str]:
    labels = ",".join(f"{name}={value}" for name, value in sorted(one.spec.labels.items()))
    state = pb.SandboxState.Name(one.state).removeprefix("SANDBOX_STATE_")
    lease = until_then(one.lease.expire_time) if one.HasField("lease") else "in a pool"
    return [one.sandbox_id, one.spec.template, state, age(one.create_time), lease, labels]
