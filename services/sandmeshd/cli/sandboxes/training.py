"""`sandmesh training`: the tasks of training environments, and episodes of a program that acts in them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandmesh.errors import InvalidArgument, SandmeshError
from sandmeshd.cli.terminal.connection import CALL_SECONDS, ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json, print_table

if TYPE_CHECKING:
    from sandmesh import TrainingSandboxAsync
    from sandmeshd.drivers.node.mounts.training_data import TrainingData

training_commands = typer.Typer(
    help="List the tasks of training environments, run episodes, and give data to those that need it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OWN_TYPES = ("bfcl", "appworld", "textarena")
"""Environments that a type of sandboxes has its name of."""

Environment = Annotated[
    str, typer.Argument(help="An environment, as gym:CartPole-v1 or bfcl:multi_turn.", metavar="ENVIRONMENT")
]


@dataclass(frozen=True)
class TaskOptions:
    """Where the tasks are."""

    sandbox_type: Annotated[
        str | None,
        typer.Option("--type", "-t", help="The type of the sandbox; by default the environment's own, else training."),
    ] = None
    split: Annotated[str, typer.Option(help="The part of the tasks.")] = "train"

    def box(self, connection: ConnectionOptions, environment: str) -> TrainingSandboxAsync:
        """Return a sandbox that is to be created."""
        from sandmesh import TrainingSandboxAsync  # noqa: PLC0415 - help needs no SDK

        name = environment.partition(":")[0]
        kind = self.sandbox_type or (name if name in OWN_TYPES else "training")
        return TrainingSandboxAsync(None, CALL_SECONDS, connection.address, connection.token, kind)


@dataclass(frozen=True)
class RunOptions:
    """Which episodes are run."""

    agent: Annotated[
        str,
        typer.Option(
            help="A program that reads a state as a line of JSON and answers with an action as one.", metavar="COMMAND"
        ),
    ]
    tasks: Annotated[int, typer.Option(help="The first so many tasks.", min=1)] = 10
    at_once: Annotated[int, typer.Option(help="Episodes at a time.", min=1, max=100)] = 4
    steps: Annotated[int, typer.Option(help="The most steps of an episode.", min=1)] = 1000


@dataclass
class EpisodeReport:
    """How an episode went; `fault` says whose fault its failure was."""

    task: str
    steps: int = 0
    reward: float = 0.0
    score: Any = None
    fault: str = ""
    error: str = ""


@training_commands.command(name="ls", epilog="Example: sandmesh training ls --split test bfcl:live_simple")
@grouped
def list_tasks(
    environment: Environment, connection: ConnectionOptions, tasks: TaskOptions, output: Output = Format.TEXT
) -> None:
    """List the tasks of an environment, one a line."""
    found = run_command(_list(tasks.box(connection, environment), environment, tasks.split))
    if output is Format.JSON:
        print_json(found)
    else:
        typer.echo("".join(f"{task}\n" for task in found), nl=False)


@training_commands.command(
    epilog="Example: sandmesh training run gym:CartPole-v1 --agent 'python3 agent.py' --tasks 20"
)
@grouped
def run(
    environment: Environment,
    connection: ConnectionOptions,
    tasks: TaskOptions,
    options: RunOptions,
    output: Output = Format.TEXT,
) -> None:
    """Run episodes, each with a process of the agent's program, and print their scores.

    The first line that the program reads has "state" and "info", each further one also "reward" and "is_terminated"; it
    answers each with a line, the action.
    """
    if not shlex.split(options.agent):
        raise typer.BadParameter("--agent needs a command")
    episodes = run_command(_run(tasks.box(connection, environment), environment, tasks.split, options))
    if output is Format.JSON:
        print_json([asdict(episode) for episode in episodes])
    else:
        rows = [
            [
                episode.task,
                str(episode.steps),
                f"{episode.reward:g}",
                json.dumps(episode.score),
                episode.fault,
                episode.error,
            ]
            for episode in episodes
        ]
        print_table(("TASK", "STEPS", "REWARD", "SCORE", "FAULT", "ERROR"), rows)
    if any(episode.fault for episode in episodes):
        raise typer.Exit(1)


@training_commands.command(epilog="Example: sandmesh training prepare appworld --data ~/appworld/data")
def prepare(
    environment: Annotated[str, typer.Argument(help="The environment: appworld.", metavar="ENVIRONMENT")],
    data: Annotated[Path, typer.Option(help="The folder that holds its data.", metavar="PATH")],
    output: Output = Format.TEXT,
) -> None:
    """Check the data of an environment that no package ships, and copy it to where this node's sandboxes see it."""
    found = run_command(_prepare(environment, data.expanduser()))
    if output is Format.JSON:
        print_json({"environment": environment, "version": found.version, "tasks": found.tasks})
    else:
        typer.echo(f"{environment}: version {found.version}, {found.tasks} tasks, at {found.folder}")


async def _prepare(environment: str, data: Path) -> TrainingData:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.drivers.node.mounts.training_data import prepare_data  # noqa: PLC0415

    paths = read_settings(find_config(None, os.environ, Path.cwd())).paths
    paths.make()
    return await prepare_data(paths, environment, data)


async def _list(box: TrainingSandboxAsync, environment: str, split: str) -> list[str]:
    async with box:
        return await box.get_task_ids(environment, split)


async def _run(box: TrainingSandboxAsync, environment: str, split: str, options: RunOptions) -> Sequence[EpisodeReport]:
    turns = asyncio.Semaphore(options.at_once)
    async with box:
        chosen = (await box.get_task_ids(environment, split))[: options.tasks]

        async def play(task: str) -> EpisodeReport:
            async with turns:
                return await _play(box, environment, task, options)

        return await asyncio.gather(*map(play, chosen))


async def _play(box: TrainingSandboxAsync, environment: str, task: str, options: RunOptions) -> EpisodeReport:
    episode = EpisodeReport(task)
    agent = await asyncio.create_subprocess_exec(
        *shlex.split(options.agent), stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=16 << 20
    )
    try:
        await _act(box, environment, agent, episode, options.steps)
    except SandmeshError as error:
        episode.fault, episode.error = error.fault, error.message
    finally:
        if agent.returncode is None:
            agent.kill()
        await agent.wait()
    return episode


async def _act(
    box: TrainingSandboxAsync, environment: str, agent: asyncio.subprocess.Process, episode: EpisodeReport, most: int
) -> None:
    state = await box.create_instance(environment, episode.task)
    instance = state["info"]["instance_id"]
    try:
        while episode.steps < most and not state.get("is_terminated"):
            state = await box.step(instance, await _answer(agent, state))
            episode.steps += 1
            episode.reward += state["reward"]
        episode.score = await box.evaluate(instance)
    finally:
        await box.release_instance(instance)


async def _answer(agent: asyncio.subprocess.Process, state: dict[str, Any]) -> Any:
    """Return the agent's answer to a state.

    Raises:
        InvalidArgument: It ended, or wrote what is not a line of JSON.
    """
    if agent.stdin is None or agent.stdout is None:
        raise InvalidArgument("the agent has no standard input and output")
    try:
        agent.stdin.write(json.dumps(state).encode() + b"\n")
        await agent.stdin.drain()
        line = await agent.stdout.readline()
        return json.loads(line)
    except (ConnectionError, ValueError) as error:
        raise InvalidArgument(f"the agent's program ended, or its answer is not a line of JSON: {error}") from None
