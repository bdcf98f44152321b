"""`sandmesh worker`: sandboxes for agents that a vendor hosts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument, SandmeshError
from sandmeshd.cli.hosted_agents import TEMPLATE
from sandmeshd.cli.packages import explain_package
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Limit, parse_limits, parse_pairs

worker_commands = typer.Typer(
    help="Serve agents that a vendor hosts, each session in a sandbox.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

KEY = "ANTHROPIC_ENVIRONMENT_KEY"
FIX = 'pip install "sandmesh[claude-worker]"'


@dataclass(frozen=True)
class HostedAgentOptions:
    """What the sandboxes of sessions are like."""

    sandbox_type: Annotated[str, typer.Option("--type", help="The template of the sandboxes.", metavar="NAME")] = (
        TEMPLATE
    )
    most: Annotated[
        int, typer.Option("--most", min=1, max=1000, help="How many sessions run side by side.", metavar="N")
    ] = 8
    keep: Annotated[
        float,
        typer.Option(min=60, help="Seconds that a session's sandbox is kept after its last work.", metavar="SECONDS"),
    ] = 3600.0
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            "-n",
            help="What sessions may reach besides the API, such as packages or github.com; repeatable.",
            metavar="WHAT",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="A variable of their environment; repeatable.", metavar="NAME=VALUE"),
    ] = None
    limit: Limit = None


@worker_commands.command(
    epilog=f"Example: {KEY}=sk-ant-... sandmesh worker claude --environment env_01... --network packages"
)
@grouped
def claude(
    environment: Annotated[
        str,
        typer.Option(
            envvar="ANTHROPIC_ENVIRONMENT_ID",
            help="The self-hosted environment whose sessions are served.",
            metavar="ID",
            show_default=False,
        ),
    ],
    options: HostedAgentOptions,
    connection: ConnectionOptions,
) -> None:
    """Serve a self-hosted environment of Claude Managed Agents, whose key is in ANTHROPIC_ENVIRONMENT_KEY."""
    lacking = explain_package("sandmesh worker claude", "anthropic", "claude-worker", FIX)
    if lacking is not None:
        raise SandmeshError(lacking, {"fix": FIX})
    key = os.environ.get(KEY, "")
    if not key:
        fix = f"set {KEY} to the environment's key; it stays outside of the sandboxes"
        raise InvalidArgument(f"the worker needs a key: {fix}", {"field": KEY, "fix": fix})
    connection.require_address()
    run_command(_serve(environment, key, options, connection))


async def _serve(environment: str, key: str, options: HostedAgentOptions, connection: ConnectionOptions) -> None:
    # What only this command needs.
    from anthropic import APIStatusError  # noqa: PLC0415

    from sandmeshd.cli.hosted_agents.claude import ClaudeWorker, WorkerStart  # noqa: PLC0415

    start = WorkerStart(
        environment,
        key,
        dict(os.environ),
        options.sandbox_type,
        options.most,
        options.keep,
        tuple(options.network or ()),
        parse_pairs(options.env),
        parse_limits(options.limit),
    )
    try:
        await ClaudeWorker(connection, start).run()
    except ExceptionGroup as group:
        error = group.exceptions[0]
        if not isinstance(error, APIStatusError):
            raise error from None
        fix = f"check {KEY} and the environment's id"
        raise SandmeshError(f"the API refuses the worker: {error.message}: {fix}", {"fix": fix}) from None
