"""`sandmesh agent`: a coding agent in a sandbox, on a copy of a folder whose changes are shown and may be applied."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.coding_agents.agents import AGENTS, CodingAgent
from sandmeshd.cli.coding_agents.changes import apply as apply_changes
from sandmeshd.cli.coding_agents.changes import conflicts, patch
from sandmeshd.cli.coding_agents.records import (
    AgentWork,
    directory_locked,
    find_work,
    get_work,
    list_names,
    remove_work,
)
from sandmeshd.cli.coding_agents.report import print_changes, print_tree
from sandmeshd.cli.coding_agents.runs import AgentStart, end_sandbox, run_agent
from sandmeshd.cli.coding_agents.tree import run_tree
from sandmeshd.cli.coding_agents.work_tree import ignored, scan
from sandmeshd.cli.run.call_output import run_for_exit_code
from sandmeshd.cli.run.terminal import is_terminal
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Limit, Output, parse_limits, parse_pairs
from sandmeshd.cli.terminal.output import print_json, print_table

agent_commands = typer.Typer(
    help="Run a coding agent in a sandbox, on a copy of a folder: its changes are shown, and applied when you say so.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[Path, typer.Argument(help="The folder that it works on.", metavar="DIR")]
Name = Annotated[str, typer.Argument(help="The name of the work.", metavar="NAME", show_default=False)]


@dataclass(frozen=True)
class AgentOptions:
    """What an agent works on, and how."""

    task: Annotated[
        str, typer.Option("--task", "-p", help="Carry this out without questions, and end.", metavar="TEXT")
    ] = ""
    name: Annotated[
        str, typer.Option(help="The name by which the work is resumed. [default: AGENT-FOLDER]", metavar="NAME")
    ] = ""
    mount: Annotated[
        bool, typer.Option("--mount", help="Work on the folder itself instead of a copy; a copy of it is kept.")
    ] = False
    tree: Annotated[
        int, typer.Option(min=0, max=16, help="Carry out the task in this many forks side by side.", metavar="N")
    ] = 0
    apply: Annotated[
        bool | None, typer.Option("--apply/--no-apply", help="Apply the changes, or keep them; by default it asks.")
    ] = None
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            "-n",
            help="What it may reach besides its API and packages' indexes, such as github.com; repeatable.",
            metavar="WHAT",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="A variable of its environment; repeatable.", metavar="NAME=VALUE"),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="What the copy leaves out besides what git ignores; repeatable.", metavar="PATTERN"),
    ] = None
    limit: Limit = None

    def start(self, agent: CodingAgent, extra: list[str]) -> AgentStart:
        """Return how the agent is started."""
        return AgentStart(
            agent,
            dict(os.environ),
            self.task,
            extra,
            tuple(self.network or ()),
            parse_pairs(self.env),
            parse_limits(self.limit),
        )

    def work(self, agent: CodingAgent, directory: Path) -> AgentWork:
        """Return the work of that name: the one that there is, or a new one on the folder as it is now.

        Raises:
            InvalidArgument: There is no such folder, or the name belongs to other work.
        """
        if not directory.is_dir():
            raise InvalidArgument(f"{directory} is not a folder: name the one that {agent.title} is to work on")
        whole = directory.resolve()
        name = self.name or f"{agent.name}-{whole.name.lstrip('.-_') or 'root'}"[:60]
        found = find_work(name)
        if found is None:
            patterns = (*ignored(whole), *agent.caches, *(self.exclude or ()))
            return AgentWork(name, agent.name, str(whole), patterns, scan(whole, patterns), mounted=self.mount)
        if (found.agent, found.directory, found.mounted) != (agent.name, str(whole), self.mount):
            fix = f"choose another --name, or remove it with `sandmesh agent rm {name}`"
            how = " with --mount" if found.mounted else ""
            raise InvalidArgument(
                f"{name!r} is the work of {found.agent} on {found.directory}{how}: {fix}", {"fix": fix}
            )
        return found


def _add(agent: CodingAgent) -> None:
    @agent_commands.command(
        name=agent.name,
        help=f"Run {agent.title} on a folder.",
        epilog=f"Examples: sandmesh agent {agent.name} . | sandmesh agent {agent.name} . -p 'Fix the tests' --tree 3",
    )
    @grouped
    def run(  # pyright: ignore[reportUnusedFunction]  # Typer has it
        directory: Directory,
        options: AgentOptions,
        connection: ConnectionOptions,
        extra: Annotated[
            list[str] | None, typer.Argument(help="Arguments of the agent itself, after --.", metavar="ARGUMENT...")
        ] = None,
    ) -> None:
        start = options.start(agent, list(extra or ()))
        if options.tree:
            _run_tree(connection, start, directory, options)
            return
        work = options.work(agent, directory)
        with work.locked():
            raise typer.Exit(_run_locked(connection, start, work, options))


def _run_locked(connection: ConnectionOptions, start: AgentStart, work: AgentWork, options: AgentOptions) -> int:
    if work.mounted:
        with directory_locked(work.directory):
            kept = work.save().keep_tree(Path(work.directory), options.exclude or ())
            typer.echo(f"the folder as it is now is kept in {kept}", err=True)
            return run_for_exit_code(_run(connection, start, work))
    code = run_for_exit_code(_run(connection, start, work))
    current = find_work(work.name)
    if current is None:  # it was never started
        remove_work(work.name)
    else:
        _finish(current, options.apply)
    return code


async def _run(connection: ConnectionOptions, start: AgentStart, work: AgentWork) -> int:
    _, code = await run_agent(connection, start, work)
    return code


def _finish(work: AgentWork, wanted: bool | None) -> None:
    """Show what changed, and apply it where that is wanted."""
    changes = work.changes()
    print_changes(work, changes)
    if not changes:
        return
    if wanted is None and is_terminal():
        wanted = typer.confirm(f"Apply these to {work.directory}?", err=True)
    if wanted:
        _apply(work)
    else:
        typer.echo(f"`sandmesh agent apply {work.name}` applies them to {work.directory}", err=True)


def _apply(work: AgentWork) -> tuple[str, ...]:
    changes = work.changes()
    applied = apply_changes(Path(work.directory), work.result, changes)
    done = {change.path: change.after for change in changes if change.path in applied.paths}
    base = {path: entry for path, entry in {**work.base, **done}.items() if entry is not None}
    work.save(base=base)
    for path in applied.links_left_out:
        typer.echo(f"{path} is a link that leads outside of the folder: it is left out", err=True)
    typer.echo(f"{len(applied.paths)} files are applied to {work.directory}", err=True)
    return applied.paths


def _run_tree(connection: ConnectionOptions, start: AgentStart, directory: Path, options: AgentOptions) -> None:
    if not start.task or options.mount:
        raise InvalidArgument("--tree needs a task (-p TEXT) and copies: leave out --mount")
    work = options.work(start.agent, directory)
    runs = run_command(run_tree(connection, start, work, options.tree))
    print_tree(runs)
    raise typer.Exit(0 if any(run.exit_code == 0 for run in runs) else 1)


@agent_commands.command(epilog="Example: sandmesh agent ls")
@grouped
def ls(output: Output = Format.TEXT) -> None:
    """List the works of agents that this machine keeps."""
    works = [get_work(name) for name in list_names()]
    rows = [(work.name, work.agent, str(len(work.changes())), work.directory) for work in works]
    if output is Format.JSON:
        keys = ("name", "agent", "changes", "directory")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(("NAME", "AGENT", "CHANGES", "FOLDER"), rows)


@agent_commands.command(epilog="Example: sandmesh agent diff claude-project > changes.patch")
@grouped
def diff(name: Name, output: Output = Format.TEXT) -> None:
    """Print what an agent changed that was not applied, as a patch."""
    work = get_work(name)
    changes = work.changes()
    if output is Format.JSON:
        lines = list(patch(Path(work.directory), work.result, changes))
        print_json({"name": name, "paths": [change.path for change in changes], "patch": lines})
        return
    print_changes(work, changes)


@agent_commands.command(epilog="Example: sandmesh agent apply claude-project")
@grouped
def apply(name: Name, output: Output = Format.TEXT) -> None:
    """Apply what an agent changed to the folder, all of it or nothing."""
    work = get_work(name)
    with work.locked():
        found = conflicts(Path(work.directory), work.changes())
        paths = _apply(work)
    if output is Format.JSON:
        print_json({"name": name, "applied": list(paths), "conflicts": found})


@agent_commands.command(epilog="Example: sandmesh agent rm claude-project")
@grouped
def rm(
    name: Name,
    connection: ConnectionOptions,
    force: Annotated[bool, typer.Option("--force", "-f", help="Also where changes were not applied.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Remove a work: its sandbox, and its changes."""
    _remove(name, force, lambda work: run_command(end_sandbox(connection, work)))
    if output is Format.JSON:
        print_json({"name": name, "removed": True})


def _remove(name: str, force: bool, end: Callable[[AgentWork], None]) -> None:
    if force:
        with suppress(InvalidArgument):  # its record cannot be read
            end(get_work(name))
        remove_work(name)
        return
    work = get_work(name)
    with work.locked():
        if work.changes():
            fix = f"`sandmesh agent apply {name}` applies them, --force removes them"
            raise InvalidArgument(f"{name!r} has changes that were not applied: {fix}", {"fix": fix})
        end(work)
        remove_work(name)


for _agent in AGENTS.values():
    _add(_agent)
