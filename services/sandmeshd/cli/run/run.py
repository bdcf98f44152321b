"""`sandmesh run`: a program, a file or code in a sandbox of its own or of a session."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer

from sandmesh import SandboxAsync
from sandmeshd.cli.run.sandbox import Staying, opened
from sandmeshd.cli.run.spec import Making
from sandmeshd.cli.run.stdio import carry, has_input
from sandmeshd.cli.terminal.exit_codes import exit_of
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Timeout

commands = typer.Typer(rich_markup_mode=None)

INTERPRETERS = {".py": "python3", ".sh": "sh"}


@commands.command(
    # Options after the first argument are the inner command's.
    context_settings={"allow_interspersed_args": False},
    epilog="Examples: sandmesh run -- ls -l / | sandmesh run -e NAME=Ada job.py --fast | "
    "sandmesh run -c 'print(6 * 7)' | sandmesh run --session build -- tar x < source.tar",
)
@grouped
def run(
    where: Where,
    making: Making,
    staying: Staying,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A program and its arguments, after --; or a local .py or .sh file and its arguments.",
            metavar="[FILE|COMMAND] [ARGUMENT]...",
            show_default=False,
        ),
    ] = None,
    code: Annotated[str | None, typer.Option("--code", "-c", help="Python code to run.", metavar="CODE")] = None,
    timeout: Timeout = 3000,
) -> None:
    """Run something in a sandbox of its own, with this command's input, output, signals and exit code."""
    words = list(command or ())
    if words[:1] == ["--"]:
        del words[0]
    if not words and code is None:
        raise typer.BadParameter("say what to run: -- COMMAND, a .py or .sh file, or -c CODE")
    raise typer.Exit(exit_of(_ran(_Task(words, code), opened(where, making, staying, timeout), timeout)))


class _Task:
    """What is to run: words that may begin with a local file, or code."""

    def __init__(self, words: list[str], code: str | None) -> None:
        self._words = words
        self._code = code

    async def prepare(self, box: SandboxAsync) -> list[str]:
        """Put a file where it runs, and give the command."""
        if self._code is not None:
            return ["python3", "-c", self._code, *self._words]
        local = Path(self._words[0])
        interpreter = INTERPRETERS.get(local.suffix)
        if interpreter is None or not await asyncio.to_thread(local.is_file):
            return self._words
        await box.fs.write(local.name, await asyncio.to_thread(local.read_bytes))
        return [interpreter, local.name, *self._words[1:]]


async def _ran(task: _Task, opening: AbstractAsyncContextManager[SandboxAsync], timeout: float) -> int:
    async with opening as box:
        return await carry(box, await task.prepare(box), timeout, stdin=has_input())
