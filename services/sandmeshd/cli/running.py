"""Commands that run something in a sandbox: their exit code is that of what ran."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.cli.copying import run_tool
from sandmeshd.cli.endings import NOT_RUN, explain
from sandmeshd.cli.finding import find_address
from sandmeshd.cli.grouping import grouped
from sandmeshd.cli.lifetime import run_to_end
from sandmeshd.cli.options import Command, Limit, SandboxId, Template, Timeout, limits, pairs
from sandmeshd.cli.where import Where

commands = typer.Typer(rich_markup_mode=None)

# Options after the first argument are the inner command's.
INNER = {"allow_interspersed_args": False}

Environment = Annotated[
    list[str] | None, typer.Option("--env", "-e", help="A variable of what runs; repeatable.", metavar="NAME=VALUE")
]


@commands.command(context_settings=INNER, epilog="Example: sandmesh run -e NAME=Ada -- bash -c 'echo hello $NAME'")
@grouped
def run(
    command: Command,
    where: Where,
    template: Template = "base",
    env: Environment = None,
    limit: Limit = None,
    timeout: Timeout = 3000,
) -> None:
    """Run a command in a sandbox of its own, and give the sandbox back when it ends."""
    box = SandboxAsync(
        sandbox_type=template,
        timeout=timeout,
        base_url=find_address(where.base_url),
        bearer_token=where.token,
        env=pairs(env),
        limits=limits(limit),
    )
    raise typer.Exit(_run(box, "run_shell_command", command=_line(command)))


@commands.command(name="exec", context_settings=INNER, epilog="Example: sandmesh exec sb_... -- ls -l")
@grouped
def exec_(sandbox_id: SandboxId, command: Command, where: Where, timeout: Timeout = 3000) -> None:
    """Run a command in a sandbox that is there."""
    box = SandboxAsync(sandbox_id, timeout=timeout, base_url=find_address(where.base_url), bearer_token=where.token)
    raise typer.Exit(_run(box, "run_shell_command", command=_line(command)))


@commands.command(epilog='Example: sandmesh python "import sys; sys.version"')
@grouped
def python(
    code: Annotated[str, typer.Argument(help="Python code; - reads it from standard input.")],
    where: Where,
    template: Template = "base",
    limit: Limit = None,
    timeout: Timeout = 3000,
) -> None:
    """Run Python code in a sandbox of its own."""
    text = sys.stdin.read() if code == "-" else code
    box = SandboxAsync(
        sandbox_type=template,
        timeout=timeout,
        base_url=find_address(where.base_url),
        bearer_token=where.token,
        limits=limits(limit),
    )
    raise typer.Exit(_run(box, "run_ipython_cell", code=text))


def _line(command: list[str]) -> str:
    # What follows the first word is the inner command's, so Click leaves the dashes before it where they are.
    return shlex.join(command[1:] if command[0] == "--" else command)


def _run(box: SandboxAsync, tool: str, **arguments: object) -> int:
    try:
        return run_to_end(_ran(box, tool, **arguments))
    except SandmeshError as error:
        explain(error)
        return NOT_RUN


async def _ran(box: SandboxAsync, tool: str, **arguments: object) -> int:
    async with box:
        return await run_tool(box, tool, **arguments)
