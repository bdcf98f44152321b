"""The sandbox that `run` uses: one of its own, one that stays, or one of a session."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmesh._client.messages import write_spec
from sandmesh.api.session.v1 import session_pb2
from sandmesh.inputs import Options
from sandmeshd.cli.run.spec import Making
from sandmeshd.cli.terminal.mesh_option import Where, own_user
from sandmeshd.cli.terminal.mesh_selection import connected, find_address
from sandmeshd.cli.terminal.options import pairs


@dataclass(frozen=True)
class Staying:
    """Whether a sandbox stays, and what it is found by."""

    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="A label to find it by; repeatable.", metavar="KEY=VALUE"),
    ] = None
    rm: Annotated[
        bool, typer.Option("--rm/--no-rm", help="Give the sandbox back at the end, or leave it until its lease ends.")
    ] = True
    session: Annotated[
        str | None,
        typer.Option(help="The sandbox of this session, which is made if need be and stays.", metavar="ID"),
    ] = None
    user: Annotated[str | None, typer.Option(help="Whose session; by default yours.", metavar="ID")] = None

    @property
    def stays(self) -> bool:
        """Whether the sandbox outlives the command."""
        return self.session is not None or not self.rm


@asynccontextmanager
async def opened(where: Where, making: Making, staying: Staying, timeout: float) -> AsyncGenerator[SandboxAsync]:
    """Open the sandbox; one of the command's own is given back at the end.

    Raises:
        MeshUnavailable: It is to stay and no mesh runs.
        SandmeshError: It could not be had.
    """
    options: Options = {**making.options(), "labels": pairs(staying.label, "KEY=VALUE")}
    url = find_address(where.base_url)
    if staying.stays:
        sandbox_id = await _kept(
            where, staying, session_pb2.SlotSpec(spec=write_spec(making.template, options)), timeout
        )
        box = SandboxAsync(sandbox_id, timeout=timeout, base_url=url, bearer_token=where.token)
    else:
        box = SandboxAsync(
            sandbox_type=making.template, timeout=timeout, base_url=url, bearer_token=where.token, **options
        )
    async with box:
        yield box


async def _kept(where: Where, staying: Staying, slot: session_pb2.SlotSpec, timeout: float) -> str:
    session = staying.session or f"run-{secrets.token_hex(6)}"
    # A token says by itself whose it is.
    user = staying.user or ("" if where.token else own_user())
    request = session_pb2.ConnectSessionRequest(user_id=user, session_id=session, slots=[slot])
    async with connected(where) as mesh:
        answer = await mesh.ask(lambda stubs: stubs.sessions.ConnectSession, request, timeout)
    sandbox_id = answer.session.sandboxes[slot.spec.template].sandbox_id
    if staying.session is None:
        typer.echo(f"{sandbox_id} stays until its lease ends; `sandmesh kill {sandbox_id}` ends it", err=True)
    return sandbox_id
