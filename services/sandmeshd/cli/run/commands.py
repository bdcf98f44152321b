"""Commands that run something in a sandbox: their exit code is that of what ran."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmeshd.cli.run.output_copy import run_tool
from sandmeshd.cli.run.spec import Making
from sandmeshd.cli.run.stdio import carry
from sandmeshd.cli.run.terminal import SHELL, attach, is_terminal
from sandmeshd.cli.terminal.exit_codes import exit_of
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Command, SandboxId, Timeout

Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Pass standard input on.")]
Terminal = Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal.")]

commands = typer.Typer(rich_markup_mode=None)

# Options after the first argument are the inner command's.
INNER = {"allow_interspersed_args": False}


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
        raise typer.Exit(exit_of(attach(box, _words(command), terminal=_wanted(terminal))))
    raise typer.Exit(exit_of(_carried(box, _words(command), timeout)))


@commands.command(epilog="Example: sandmesh shell sb_...")
@grouped
def shell(sandbox_id: SandboxId, where: Where) -> None:
    """Open a shell in a sandbox: a terminal of its own, or what standard input says where that is none."""
    box = SandboxAsync(sandbox_id, base_url=find_address(where.base_url), bearer_token=where.token)
    raise typer.Exit(exit_of(attach(box, SHELL, terminal=is_terminal())))


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
    raise typer.Exit(exit_of(_ran(_new_box(where, making, timeout), "run_ipython_cell", code=text)))


def _new_box(where: Where, making: Making, timeout: float) -> SandboxAsync:
    return SandboxAsync(
        sandbox_type=making.template,
        timeout=timeout,
        base_url=find_address(where.base_url),
        bearer_token=where.token,
        **making.options(),
    )


def _words(command: list[str]) -> list[str]:
    # What follows the first word is the inner command's, so Click leaves the dashes before it where they are.
    return command[1:] if command[0] == "--" else command


def _wanted(terminal: bool) -> bool:
    if terminal and not is_terminal():
        raise typer.BadParameter("-t needs a terminal at standard input and output: leave it out, as in exec -i")
    return terminal


async def _ran(box: SandboxAsync, tool: str, **arguments: object) -> int:
    async with box:
        return await run_tool(box, tool, **arguments)


async def _carried(box: SandboxAsync, command: list[str], timeout: float) -> int:
    async with box:
        return await carry(box, command, timeout, stdin=False)
