"""A tree of an agent's runs: forks of one sandbox carry out one task side by side."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from sandmesh.errors import SandmeshError
from sandmeshd.cli.coding_agents.records import AgentWork, find_work
from sandmeshd.cli.coding_agents.runs import CALL_SECONDS, AgentStart, run_fork
from sandmeshd.cli.coding_agents.work_tree import NEVER_COPIED
from sandmeshd.cli.terminal.connection import ConnectionOptions

if TYPE_CHECKING:
    from sandmesh import SandboxAsync


@dataclass(frozen=True)
class TreeRun:
    """One fork's run; its exit code is None where it could not be run."""

    work: AgentWork
    exit_code: int | None
    seconds: float


async def run_tree(connection: ConnectionOptions, start: AgentStart, work: AgentWork, count: int) -> list[TreeRun]:
    """Carry out a task in `count` forks of one sandbox, named NAME-1 and so on; their sandboxes end with it.

    Raises:
        InvalidArgument: Some have changes of an earlier run that were not applied.
    """
    from sandmesh import SandboxAsync  # noqa: PLC0415 - help needs none of it

    works = [replace(work, name=f"{work.name}-{number}") for number in range(1, count + 1)]
    await asyncio.to_thread(_clear, works)
    address = connection.address
    options = start.options(stored=address is not None)
    async with AsyncExitStack() as stack:
        for one in works:
            stack.enter_context(one.locked())
        first = SandboxAsync(
            sandbox_type=start.agent.name,
            timeout=CALL_SECONDS,
            base_url=address,
            bearer_token=connection.token,
            **options,
        )
        await stack.enter_async_context(first)
        await first.fs.upload_dir(work.directory, ".", exclude=[*work.patterns, *NEVER_COPIED])
        await start.write_settings(first)
        boxes = [first]
        if count > 1:
            forks = await first.fork(count=count - 1)
            boxes += [await stack.enter_async_context(fork) for fork in forks]
            if forks.error is not None:
                typer.echo(f"{len(boxes)} of {count} could be made: {forks.error.message}", err=True)
        pairs = zip(boxes, works, strict=False)
        return list(await asyncio.gather(*(_run(box, start, one) for box, one in pairs)))


async def _run(box: SandboxAsync, start: AgentStart, work: AgentWork) -> TreeRun:
    try:
        code, seconds = await run_fork(box, start, work)
    except SandmeshError as error:
        typer.echo(f"{work.name}: {error.message}", err=True)
        return TreeRun(work, None, 0.0)
    typer.echo(f"{work.name}: ended with {code} after {seconds:.1f} s", err=True)
    return TreeRun(work, code, seconds)


def _clear(works: list[AgentWork]) -> None:
    """Remove what earlier runs of the same names left, where nothing in it is lost."""
    from sandmesh.errors import InvalidArgument  # noqa: PLC0415

    for work in works:
        found = find_work(work.name)
        if found is not None and found.changes():
            fix = f"apply or remove them (`sandmesh agent rm --force {work.name}`), or choose another --name"
            raise InvalidArgument(f"{work.name!r} has changes that were not applied: {fix}", {"fix": fix})
        shutil.rmtree(work.folder / "result", ignore_errors=True)
