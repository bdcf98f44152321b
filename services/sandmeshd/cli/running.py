"""Commands that run something in a sandbox: their exit code is that of what ran."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Coroutine
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.cli.copying import run_tool
from sandmeshd.cli.endings import NOT_RUN, explain
from sandmeshd.cli.finding import find_address
from sandmeshd.cli.grouping import grouped
from sandmeshd.cli.lifetime import run_to_end
from sandmeshd.cli.making import Making
from sandmeshd.cli.options import Command, SandboxId, Timeout
from sandmeshd.cli.terminal import SHELL, attach, is_terminal
from sandmeshd.cli.where import Where

Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Pass standard input on.")]
Terminal = Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal.")]

commands = typer.Typer(rich_markup_mode=None)

# Options after the first argument are the inner command's.
INNER = {"allow_interspersed_args": False}


@commands.command(context_settings=INNER, epilog="Example: sandmesh run -e NAME=Ada -- bash -c 'echo hello $NAME'")
@grouped
def run(command: Command, where: Where, making: Making, timeout: Timeout = 3000) -> None:
    """Run a command in a sandbox of its own, and give the sandbox back when it ends."""
    raise typer.Exit(_run(_ran(_new_box(where, making, timeout), "run_shell_command", command=_line(command))))


@commands.command(name="exec", context_settings=INNER, epilog="Example: sandmesh exec -it sb_... -- python3")
@grouped
def exec_(
    sandbox_id: SandboxId,
    command: Command,
    where: Where,
    interactive: Interactive = False,
    terminal: Terminal = False,
    timeout: Timeout = 3000,
) -> None:
    """Run a command in a sandbox that is there."""
    box = SandboxAsync(sandbox_id, timeout=timeout, base_url=find_address(where.base_url), bearer_token=where.token)
    if interactive or terminal:
        raise typer.Exit(_run(attach(box, _line(command), terminal=_wanted(terminal))))
    raise typer.Exit(_run(_ran(box, "run_shell_command", command=_line(command))))


@commands.command(epilog="Example: sandmesh shell sb_...")
@grouped
def shell(sandbox_id: SandboxId, where: Where) -> None:
    """Open a shell in a sandbox: a terminal of its own, or what standard input says where that is none."""
    box = SandboxAsync(sandbox_id, base_url=find_address(where.base_url), bearer_token=where.token)
    raise typer.Exit(_run(attach(box, SHELL, terminal=is_terminal())))


@commands.command(epilog='Example: sandmesh python "import sys; sys.version"')
@grouped
def python(
    code: Annotated[str, typer.Argument(help="Python code; - reads it from standard input.")],
    where: Where,
    making: Making,
    timeout: Timeout = 3000,
) -> None:
    """Run Python code in a sandbox of its own."""
    text = sys.stdin.read() if code == "-" else code
    raise typer.Exit(_run(_ran(_new_box(where, making, timeout), "run_ipython_cell", code=text)))


def _new_box(where: Where, making: Making, timeout: float) -> SandboxAsync:
    return SandboxAsync(
        sandbox_type=making.template,
        timeout=timeout,
        base_url=find_address(where.base_url),
        bearer_token=where.token,
        **making.options(),
    )


def _line(command: list[str]) -> str:
    # What follows the first word is the inner command's, so Click leaves the dashes before it where they are.
    return shlex.join(command[1:] if command[0] == "--" else command)


def _wanted(terminal: bool) -> bool:
    if terminal and not is_terminal():
        raise typer.BadParameter("-t needs a terminal at standard input and output: leave it out, as in exec -i")
    return terminal


def _run(work: Coroutine[None, None, int]) -> int:
    try:
        return run_to_end(work)
    except SandmeshError as error:
        explain(error)
        return NOT_RUN


async def _ran(box: SandboxAsync, tool: str, **arguments: object) -> int:
    async with box:
        return await run_tool(box, tool, **arguments)
