"""Exit codes that scripts can rely on, and error messages on standard error."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from sandmesh.errors import SandmeshError

DONE, FAILED, USAGE, NOT_FOUND, UNAVAILABLE, DENIED = range(6)
TIMED_OUT, NOT_RUN = 124, 125

MEANINGS: dict[int, str] = {
    DONE: "success",
    FAILED: "the mesh refused or failed for a reason that is not below",
    USAGE: "the command line, a setting or an argument is wrong, or a package that the command needs is not installed",
    NOT_FOUND: "what was named does not exist, or is not the caller's",
    UNAVAILABLE: "no mesh answers, or something that it needs does not",
    DENIED: "there is no token, it is not valid, or it does not allow this",
    TIMED_OUT: "the program in the sandbox exceeded its time limit",
    NOT_RUN: "the mesh could not run it (run, exec, python and shell only; other codes are the program's)",
    127: "the sandbox has no such program, or it cannot be run (run and exec)",
}
"""Exit codes; besides these, 128 and a signal's number mean that the signal ended the command."""


def exit_code_of(error: SandmeshError) -> int:
    """Return the exit code for an error."""
    from sandmesh.errors import Denied, InvalidArgument, NotFound, Unavailable  # noqa: PLC0415 - they load protobuf

    codes = {InvalidArgument: USAGE, NotFound: NOT_FOUND, Unavailable: UNAVAILABLE, Denied: DENIED}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), FAILED)


def _mesh_errors() -> type[SandmeshError]:
    """Return the class of the mesh's errors; a command that raises none does not import it."""
    from sandmesh.errors import SandmeshError  # noqa: PLC0415 - as above

    return SandmeshError


def run_app(app: typer.Typer, name: str) -> NoReturn:
    """Run a command line and exit; errors of the mesh are printed without a traceback."""
    try:
        app(prog_name=name)
    except SystemExit:  # how every command ends that raises nothing else
        raise
    except KeyboardInterrupt:
        # A second Ctrl-C during the clean-up of the first: its traceback helps no reader.
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of the output has closed it; nothing may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except _mesh_errors() as error:
        print_error(error)
        sys.exit(exit_code_of(error))
    sys.exit(DONE)


def print_error(error: SandmeshError) -> None:
    """Print on standard error what happened and what to do."""
    from rich.console import Console  # noqa: PLC0415 - only an error needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble((error.reason, "bold red"), f" {error.message}"))
    for name in ("detail", "fix"):
        value = error.facts.get(name)
        if value and value not in error.message:
            console.print(Text.assemble((f"{name}:", "bold"), f" {value}"))
