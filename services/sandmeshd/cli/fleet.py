"""Commands on the sandboxes that a mesh has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table

from sandmesh._mesh import Connection, acquire, release
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.cli.running import Address, variables

T = TypeVar("T")
SECONDS = 10.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SandboxId = Annotated[str, typer.Argument(help="The sandbox.")]


def ls(
    label: Annotated[list[str] | None, typer.Option(help="Only sandboxes with NAME=VALUE; repeatable.")] = None,
    as_json: Json = False,
    base_url: Address = None,
) -> None:
    """List sandboxes."""
    request = pb.ListSandboxesRequest(labels=variables(label), page_size=1000)
    found = asyncio.run(_with(base_url, lambda mesh: _list(mesh, request)))
    if as_json:
        typer.echo(json.dumps([plain(sandbox) for sandbox in found]))
    else:
        Console().print(_table(found))


def inspect(sandbox_id: SandboxId, base_url: Address = None) -> None:
    """Print a sandbox's record as JSON: its state, lease, limits and what enforces them."""
    found = asyncio.run(_with(base_url, lambda mesh: _get(mesh, sandbox_id)))
    typer.echo(json.dumps(plain(found), indent=2))


def kill(sandbox_ids: Annotated[list[str], typer.Argument(help="Sandboxes to end.")], base_url: Address = None) -> None:
    """End sandboxes, whoever holds them, and remove what is in them."""
    asyncio.run(_with(base_url, lambda mesh: _kill(mesh, sandbox_ids)))


def plain(sandbox: pb.Sandbox) -> dict[str, object]:
    """Give a record as JSON values."""
    return dict(MessageToDict(sandbox, preserving_proto_field_name=True))


async def _with(base_url: str | None, work: Callable[[Connection], Awaitable[T]]) -> T:
    mesh = await acquire(base_url, None, SECONDS)
    try:
        return await work(mesh)
    finally:
        await release(mesh)


async def _list(mesh: Connection, request: pb.ListSandboxesRequest) -> list[pb.Sandbox]:
    found: list[pb.Sandbox] = []
    while True:
        page = await mesh.ask(lambda stubs: stubs.sandboxes.ListSandboxes, request, SECONDS)
        found += page.sandboxes
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def _get(mesh: Connection, sandbox_id: str) -> pb.Sandbox:
    request = pb.GetSandboxRequest(sandbox_id=sandbox_id)
    return (await mesh.ask(lambda stubs: stubs.sandboxes.GetSandbox, request, SECONDS)).sandbox


async def _kill(mesh: Connection, sandbox_ids: list[str]) -> None:
    for sandbox_id in sandbox_ids:
        token = (await _get(mesh, sandbox_id)).lease.fencing_token
        request = pb.ReleaseSandboxRequest(sandbox_id=sandbox_id, fencing_token=token)
        await mesh.ask(lambda stubs: stubs.sandboxes.ReleaseSandbox, request, SECONDS)
        typer.echo(f"{sandbox_id} is being removed")


def _table(found: list[pb.Sandbox]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("SANDBOX", no_wrap=True, min_width=29)
    for heading in ("TEMPLATE", "STATE", "DRIVER", "AGE", "LEASE ENDS", "LABELS"):
        table.add_column(heading)
    now = datetime.now(UTC)
    for one in found:
        age = now - one.create_time.ToDatetime(UTC)
        ends = one.lease.expire_time.ToDatetime(UTC) - now if one.HasField("lease") else None
        labels = ",".join(f"{name}={value}" for name, value in sorted(one.spec.labels.items()))
        state = pb.SandboxState.Name(one.state).removeprefix("SANDBOX_STATE_")
        lease = _span(ends.total_seconds()) if ends is not None else "in a pool"
        template = one.spec.template
        table.add_row(one.sandbox_id, template, state, one.driver, _span(age.total_seconds()), lease, labels)
    return table


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
