"""Runs of an agent: its sandbox, the copy of the folder in it, and the copy's way back."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from sandmesh import Output
from sandmesh.errors import InvalidArgument, NotFound, SandmeshError, TooLarge
from sandmesh.inputs import Options, Secret
from sandmeshd.cli.coding_agents.agents import CodingAgent
from sandmeshd.cli.coding_agents.records import AgentWork
from sandmeshd.cli.coding_agents.work_tree import NEVER_COPIED
from sandmeshd.cli.run.call_output import exit_code_of
from sandmeshd.cli.run.stdio import run_process
from sandmeshd.cli.run.terminal import attach_open, is_terminal
from sandmeshd.cli.terminal.connection import ConnectionOptions, own_user

if TYPE_CHECKING:
    from sandmesh import SandboxAsync

CALL_SECONDS: Final = 86_400.0
LARGEST_RESULT: Final = 4 << 30
"""Bytes of the largest copy that is taken back."""
LARGEST_OUTPUT: Final = 16 << 20
"""Bytes of a fork's output that are kept."""


@dataclass(frozen=True)
class AgentStart:
    """How an agent is started: its sandbox's options, and its command line."""

    agent: CodingAgent
    environment: Mapping[str, str]
    """This process's, which has the key."""
    task: str = ""
    extra: list[str] = field(default_factory=list[str])
    network: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: dict[str, object] | None = None

    def options(self, *, stored: bool) -> Options:
        """Return the options of its sandbox; `stored`: without a key here, the mesh's secret of that name is used.

        Raises:
            InvalidArgument: The key is missing, or the API's address is not https.
        """
        api = self.agent.api(self.environment)
        host, value = api.host(self.environment), self.environment.get(api.key) or None
        if value is None and not stored:
            keys = " or ".join(dict.fromkeys(one.key for one in self.agent.apis))
            fix = f"set {keys}; its value stays outside of the sandbox"
            raise InvalidArgument(f"{self.agent.title} needs a key of its API: {fix}", {"field": api.key, "fix": fix})
        return Options(
            env={**self.agent.start_variables(api, self.environment), **self.variables},
            limits=self.limits,
            network=[host, "packages", *self.network],
            secrets={api.key: Secret(hosts=[host], value=value)},
        )

    def command(self, *, resumed: bool) -> list[str]:
        """Return its command line."""
        return self.agent.arguments(self.task, self.extra, resumed=resumed)

    async def write_settings(self, box: SandboxAsync) -> None:
        """Write the agent's settings in its sandbox, where there are none."""
        script = self.agent.settings_script(self.agent.api(self.environment), self.environment)
        async with await box.processes.start(script) as process:
            await process.close_stdin()
            done = await process.wait()
        if done.exit_code != 0:
            raise SandmeshError(f"the settings of {self.agent.title} could not be written: {done.message}")


@asynccontextmanager
async def open_box(
    connection: ConnectionOptions, start: AgentStart, work: AgentWork
) -> AsyncGenerator[tuple[SandboxAsync, bool]]:
    """Open the sandbox of a work; yield it, and whether it is the one that the work had.

    On a mesh it is kept when the block ends. Without one it is on a private mesh, and ends with it.
    """
    from sandmesh import SandboxAsync  # noqa: PLC0415 - help needs none of it

    address = connection.address
    options = start.options(stored=address is not None)
    if work.mounted:
        options["workspace_dir"] = work.directory
    if address is None:
        async with SandboxAsync(sandbox_type=start.agent.name, timeout=CALL_SECONDS, **options) as box:
            yield box, False
        return
    user = None if connection.token else own_user()
    async with connection.mesh() as mesh:
        session = await mesh.sessions.connect(f"agent-{work.name}", user, start.agent.name, **options)
    sandbox_id = session.sandboxes[start.agent.name]
    async with connection.sandbox(sandbox_id, CALL_SECONDS) as box:
        yield box, sandbox_id == work.sandbox_id


async def run_agent(connection: ConnectionOptions, start: AgentStart, work: AgentWork) -> tuple[AgentWork, int]:
    """Run an agent on a work until it ends; return the work with what it changed, and the exit code."""
    async with open_box(connection, start, work) as (box, present):
        if not present and not work.mounted:
            await _upload(box, work)
        work = await asyncio.to_thread(lambda: work.save(sandbox_id=box.sandbox_id))
        if not present:
            await start.write_settings(box)
        command = start.command(resumed=present)
        try:
            if is_terminal() and not start.task:
                code = await attach_open(box, command, terminal=True)
            else:
                code = await run_process(box, command, None, stdin=not start.task)
        finally:
            if not work.mounted:
                await asyncio.shield(take_result(box, work))
    return work, code


async def run_fork(box: SandboxAsync, start: AgentStart, work: AgentWork) -> tuple[int, float]:
    """Run an agent's task in a sandbox of a tree; return its exit code and seconds. Its output is in `output.txt`."""
    began = time.monotonic()
    await asyncio.to_thread(lambda: work.save(sandbox_id=box.sandbox_id))
    try:
        async with await box.processes.start(start.command(resumed=False), timeout=CALL_SECONDS) as process:
            await process.close_stdin()
            with await asyncio.to_thread((work.folder / "output.txt").open, "wb") as file:
                async for event in process:
                    if isinstance(event, Output) and file.tell() < LARGEST_OUTPUT:
                        file.write(event.data)
            code = exit_code_of(await process.wait())
    finally:
        await asyncio.shield(take_result(box, work))
    return code, time.monotonic() - began


async def _upload(box: SandboxAsync, work: AgentWork) -> None:
    """Copy the folder into a new sandbox, or what the agent had made of it when its last sandbox ended."""
    source = work.directory
    if await asyncio.to_thread(work.changes):
        source = str(work.result)
        typer.echo("its sandbox has ended: the new one begins with the changes that were not applied", err=True)
    exclude = [] if source == str(work.result) else [*work.patterns, *NEVER_COPIED]
    await box.fs.upload_dir(source, ".", exclude=exclude)


async def take_result(box: SandboxAsync, work: AgentWork) -> None:
    """Copy the sandbox's workspace to where the work is kept.

    Raises:
        TooLarge: It has more than LARGEST_RESULT bytes; the last result stays.
    """

    def check(done: int, _total: int) -> None:
        if done > LARGEST_RESULT:
            fix = "name what it need not copy with --exclude"
            raise TooLarge(f"the agent's copy has more than {LARGEST_RESULT >> 30} GiB: {fix}", {"fix": fix})

    fresh = work.folder / "result.new"
    await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
    await box.fs.download_dir(".", fresh, exclude=list(work.patterns), progress=check)
    await asyncio.to_thread(_replace, fresh, work.result)


def _replace(fresh: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


async def end_sandbox(connection: ConnectionOptions, work: AgentWork) -> None:
    """Release the sandbox of a work, where a mesh has it."""
    if not work.sandbox_id or connection.address is None:
        return
    async with connection.mesh() as mesh:
        try:
            await mesh.sandboxes.kill(work.sandbox_id)
        except NotFound:
            return
