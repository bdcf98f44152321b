"""What agents changed, as people read it: control characters of a sandbox's files are escaped in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from sandmeshd.cli.coding_agents.changes import FileEdit, patch
from sandmeshd.cli.coding_agents.records import AgentWork
from sandmeshd.cli.coding_agents.tree import TreeRun
from sandmeshd.cli.terminal.output import escape_controls, print_table


def print_changes(work: AgentWork, changes: Sequence[FileEdit]) -> None:
    """Print a patch of what an agent changed; in a terminal with colours, and in a file as `git apply` takes it."""
    for line in patch(Path(work.directory), work.result, list(changes)):
        if not sys.stdout.isatty():
            sys.stdout.buffer.write(f"{line}\n".encode(errors="surrogateescape"))
            continue
        shown = escape_controls(line.replace("\t", "    "))
        colour = {"+": typer.colors.GREEN, "-": typer.colors.RED}.get(line[:1])
        typer.secho(shown, fg=colour, bold=line.startswith("diff "))
    sys.stdout.flush()
    added, removed = count_lines(work, changes)
    summary = f"{len(changes)} files changed, {added} lines added, {removed} removed" if changes else "nothing changed"
    typer.echo(f"{work.name}: {summary}", err=True)


def count_lines(work: AgentWork, changes: Sequence[FileEdit]) -> tuple[int, int]:
    """Return the lines that an agent added and removed."""
    lines = list(patch(Path(work.directory), work.result, list(changes)))
    heads = ("+++ ", "--- ")
    own = [line for line in lines if not line.startswith(heads)]
    return sum(line.startswith("+") for line in own), sum(line.startswith("-") for line in own)


def print_tree(runs: Sequence[TreeRun]) -> None:
    """Print the patch of each fork, then a table of all."""
    rows: list[tuple[str, ...]] = []
    for run in runs:
        changes = run.work.changes()
        typer.secho(f"--- {run.work.name}", bold=True)
        print_changes(run.work, changes)
        added, removed = count_lines(run.work, changes)
        code = str(run.exit_code) if run.exit_code is not None else "not run"
        rows.append((run.work.name, code, f"{run.seconds:.1f}", str(len(changes)), f"+{added} -{removed}"))
    print_table(("NAME", "EXIT", "SECONDS", "FILES", "LINES"), rows)
    typer.echo("`sandmesh agent apply NAME` applies one of them", err=True)
