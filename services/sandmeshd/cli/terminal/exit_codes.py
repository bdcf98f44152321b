"""How a command ends: errors in words on standard error, and an exit code that scripts can rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from sandmesh.errors import Denied, InvalidArgument, NotFound, SandmeshError, Unavailable
from sandmeshd.cli.terminal.lifetime import run_to_end

DONE, FAILED, USAGE, NOT_FOUND, UNAVAILABLE, DENIED = range(6)
TIMED_OUT, NOT_RUN = 124, 125

CODES: tuple[tuple[type[SandmeshError], int], ...] = (
    (InvalidArgument, USAGE),
    (NotFound, NOT_FOUND),
    (Unavailable, UNAVAILABLE),
    (Denied, DENIED),
)

MEANINGS: dict[int, str] = {
    DONE: "done",
    FAILED: "the mesh refused or failed for another reason than those below",
    USAGE: "the command line, a setting or an argument is wrong",
    NOT_FOUND: "what was named is not there, or not the caller's",
    UNAVAILABLE: "no mesh answers, or something that it needs does not",
    DENIED: "no token, one that is not valid, or one that does not allow it",
    TIMED_OUT: "what ran in the sandbox was ended by its time limit",
    NOT_RUN: "the mesh could not run it (run, exec, python and shell only, where other codes are the inner command's)",
    127: "the sandbox has no such program, or it cannot be run (run and exec)",
}
"""Exit codes; besides these, 128 and a signal's number say that the signal ended the command."""


def code_of(error: SandmeshError) -> int:
    """Give the exit code that an error stands for."""
    return next((code for kind, code in CODES if isinstance(error, kind)), FAILED)


def finish(app: typer.Typer, name: str) -> NoReturn:
    """Run the command line and end the process; what the mesh refuses is said in words, without a traceback."""
    try:
        app(prog_name=name)
    except SandmeshError as error:
        explain(error)
        sys.exit(code_of(error))
    except BrokenPipeError:
        # Whoever read the output has enough; nothing may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    sys.exit(DONE)


def exit_of(work: Coroutine[Any, Any, int]) -> int:
    """Run something in a sandbox and give its exit code; what the mesh refuses is said, with a code of its own."""
    try:
        return run_to_end(work)
    except SandmeshError as error:
        explain(error)
        return NOT_RUN


def explain(error: SandmeshError) -> None:
    """Say on standard error what happened and what to do."""
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble((error.reason, "bold red"), f" {error.message}"))
    for name, label in (("detail", "detail"), ("fix", "fix")):
        said = error.facts.get(name)
        if said and said not in error.message:
            console.print(Text.assemble((f"{label}:", "bold"), f" {said}"))
