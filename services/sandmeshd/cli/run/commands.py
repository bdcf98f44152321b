"""`sandmesh exec`, `shell` and `python`: their exit code is that of the program in the sandbox."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmeshd.cli.run.call_output import copy_output, run_for_exit_code
from sandmeshd.cli.run.sandbox_options import SandboxOptions
from sandmeshd.cli.run.stdio import run_process
from sandmeshd.cli.run.terminal import SHELL, attach, is_terminal
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Command, SandboxId, Timeout

Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Forward standard input.")]
Tty = Annotated[bool, typer.Option("--tty", "-t", help="Allocate a terminal.")]

commands = typer.Typer(rich_markup_mode=None)

# Options after the first argument belong to the program in the sandbox.
PASS_THROUGH = {"allow_interspersed_args": False}


@commands.command(name="exec", context_settings=PASS_THROUGH, epilog="Example: sandmesh exec -it sb_... -- python3")
@grouped
def exec_(
    sandbox_id: SandboxId,
    command: Command,
    connection: ConnectionOptions,
    interactive: Interactive = False,
    tty: Tty = False,
    timeout: Timeout = 3000,
) -> None:
    """Run a command in an existing sandbox."""
    if tty and not is_terminal():
        raise typer.BadParameter("-t needs a terminal at standard input and output: leave it out, as in exec -i")
    # Click leaves the dashes in place, as options after the first argument are not its own.
    arguments = command[1:] if command[0] == "--" else command
    raise typer.Exit(
        run_for_exit_code(_exec(connection, sandbox_id, arguments, timeout, tty if interactive or tty else None))
    )


@commands.command(epilog="Example: sandmesh shell sb_...")
@grouped
def shell(sandbox_id: SandboxId, connection: ConnectionOptions) -> None:
    """Open a shell in a sandbox, with a terminal where standard input is one."""
    raise typer.Exit(run_for_exit_code(_shell(connection, sandbox_id)))


@commands.command(epilog='Example: sandmesh python "import sys; sys.version"')
@grouped
def python(
    code: Annotated[str, typer.Argument(help="Python code; - reads it from standard input.")],
    connection: ConnectionOptions,
    sandbox: SandboxOptions,
    timeout: Timeout = 3000,
) -> None:
    """Run Python code in a new sandbox."""
    text = sys.stdin.read() if code == "-" else code
    raise typer.Exit(run_for_exit_code(_run_cell(sandbox.create(connection, timeout), text)))


async def _exec(
    connection: ConnectionOptions, sandbox_id: str, command: list[str], timeout: float, tty: bool | None
) -> int:
    """Run a command; None as `tty` is without input."""
    box = connection.sandbox(sandbox_id, timeout)
    if tty is not None:
        return await attach(box, command, terminal=tty)
    async with box:
        return await run_process(box, command, timeout, stdin=False)


async def _shell(connection: ConnectionOptions, sandbox_id: str) -> int:
    return await attach(connection.sandbox(sandbox_id), SHELL, terminal=is_terminal())


async def _run_cell(box: SandboxAsync, code: str) -> int:
    async with box, box.stream("run_ipython_cell", code=code) as events:
        return await copy_output(events)
