"""Which sandbox `run` uses: a new one that is released at its end or kept, or that of a session."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmesh.inputs import Options
from sandmeshd.cli.run.sandbox_options import SandboxOptions
from sandmeshd.cli.terminal.connection import ConnectionOptions, own_user
from sandmeshd.cli.terminal.options import parse_pairs


class IdleAction(Enum):
    """What is done with a sandbox that is not used."""

    RELEASE = "release"
    PAUSE = "pause"


@dataclass(frozen=True)
class SessionOptions:
    """Whether a sandbox is kept, and how it is found again."""

    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="A label of the sandbox; repeatable.", metavar="KEY=VALUE"),
    ] = None
    rm: Annotated[
        bool, typer.Option("--rm/--no-rm", help="Release the sandbox at the end, or keep it until its lease ends.")
    ] = True
    session: Annotated[
        str | None,
        typer.Option(help="Use the sandbox of this session, created if necessary, and keep it.", metavar="ID"),
    ] = None
    user: Annotated[str | None, typer.Option(help="The session's user; by default you.", metavar="ID")] = None

    idle_timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds without calls after which --on-idle is done, even while it is held.", metavar="SECONDS", min=1
        ),
    ] = None
    on_idle: Annotated[
        IdleAction | None,
        typer.Option(help="Release it then, or pause it until the next request.", show_default=False),
    ] = None

    def options(self) -> Options:
        """Return the options as the SDK's constructors take them."""
        return Options(
            labels=parse_pairs(self.label, "KEY=VALUE"),
            idle_timeout=self.idle_timeout,
            on_idle=None if self.on_idle is None else self.on_idle.value,
        )

    @property
    def keeps_sandbox(self) -> bool:
        """Whether the sandbox outlives the command."""
        return self.session is not None or not self.rm


@asynccontextmanager
async def open_sandbox(
    connection: ConnectionOptions, sandbox: SandboxOptions, session: SessionOptions, timeout: float
) -> AsyncGenerator[SandboxAsync]:
    """Open the sandbox; a new one that is not kept is released at the end.

    Raises:
        MeshUnavailable: It is to be kept and no mesh runs.
        SandmeshError: It could not be created.
    """
    added = session.options()
    if session.keeps_sandbox:
        options: Options = {**sandbox.options(), **added}
        box = connection.sandbox(await _connect(connection, session, sandbox.template, options), timeout)
    else:
        box = sandbox.create(connection, timeout, added)
    async with box:
        yield box


async def _connect(connection: ConnectionOptions, session: SessionOptions, template: str, options: Options) -> str:
    session_id = session.session or f"run-{secrets.token_hex(6)}"
    # A token names its user by itself.
    user = session.user or (None if connection.token else own_user())
    async with connection.mesh() as mesh:
        connected = await mesh.sessions.connect(session_id, user, template, **options)
    sandbox_id = connected.sandboxes[template]
    if session.session is None:
        typer.echo(f"{sandbox_id} is kept until its lease ends; `sandmesh kill {sandbox_id}` deletes it", err=True)
    return sandbox_id
