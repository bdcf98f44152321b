"""`sandmesh run`: a program, a file or code in a new sandbox or in that of a session."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmeshd.cli.run.call_output import run_for_exit_code
from sandmeshd.cli.run.sandbox_options import SandboxOptions
from sandmeshd.cli.run.session_options import SessionOptions, open_sandbox
from sandmeshd.cli.run.stdio import has_input, run_process
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Timeout

commands = typer.Typer(rich_markup_mode=None)

INTERPRETERS = {".py": "python3", ".sh": "sh"}


@dataclass(frozen=True)
class ProgramOptions:
    """What is run."""

    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A program and its arguments, after --; or a local .py or .sh file and its arguments.",
            metavar="[FILE|COMMAND] [ARGUMENT]...",
            show_default=False,
        ),
    ] = None
    code: Annotated[str | None, typer.Option("--code", "-c", help="Python code to run.", metavar="CODE")] = None
    entrypoint: Annotated[
        bool,
        typer.Option("--entrypoint", help="Run what the image says, with the arguments after -- or those of its CMD."),
    ] = False

    def arguments(self) -> list[str]:
        """Return the command line, or the arguments of the code or of the image's program.

        Raises:
            BadParameter: Nothing is named, or two things are.
        """
        arguments = list(self.command or ())
        if arguments[:1] == ["--"]:
            del arguments[0]
        if self.entrypoint and self.code is not None:
            raise typer.BadParameter("--entrypoint runs the image's program, and -c runs Python: leave one out")
        if not arguments and self.code is None and not self.entrypoint:
            raise typer.BadParameter("name what to run: -- COMMAND, a .py or .sh file, -c CODE, or --entrypoint")
        return arguments


@commands.command(
    # Options after the first argument belong to the program in the sandbox.
    context_settings={"allow_interspersed_args": False},
    epilog="Examples: sandmesh run -- ls -l / | sandmesh run -e NAME=Ada job.py --fast | "
    "sandmesh run -c 'print(6 * 7)' | sandmesh run --session build -- tar x < source.tar",
)
@grouped
def run(
    connection: ConnectionOptions,
    sandbox: SandboxOptions,
    session: SessionOptions,
    program: ProgramOptions,
    timeout: Timeout = 3000,
) -> None:
    """Run a program in a new sandbox, with this command's input, output, signals and exit code."""
    arguments = program.arguments()
    opened = open_sandbox(connection, sandbox, session, timeout)
    raise typer.Exit(run_for_exit_code(_run(opened, arguments, program, timeout)))


async def _run(
    opened: AbstractAsyncContextManager[SandboxAsync], arguments: list[str], program: ProgramOptions, timeout: float
) -> int:
    async with opened as box:
        if program.code is not None:
            arguments = ["python3", "-c", program.code, *arguments]
        elif not program.entrypoint:
            arguments = await _upload_program(box, arguments)
        return await run_process(box, arguments, timeout, stdin=has_input(), entrypoint=program.entrypoint)


async def _upload_program(box: SandboxAsync, arguments: list[str]) -> list[str]:
    """Copy a local program into the sandbox, where the first argument names one, and return the command."""
    program = Path(arguments[0])
    interpreter = INTERPRETERS.get(program.suffix)
    if interpreter is None or not await asyncio.to_thread(program.is_file):
        return arguments
    await box.fs.write(program.name, await asyncio.to_thread(program.read_bytes))
    return [interpreter, program.name, *arguments[1:]]
