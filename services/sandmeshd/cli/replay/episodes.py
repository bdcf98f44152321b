"""Recordings of episodes, replayed in a fresh sandbox."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sandmeshd.cli.terminal.connection import CALL_SECONDS, ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmesh.sandbox.training.transcript import Difference, Replay

FORMAT: Final = "sandmesh-episodes"
_LONGEST: Final = 200


@dataclass(frozen=True)
class EpisodeOptions:
    """How a recording of episodes is replayed."""

    ignore: Annotated[
        list[str] | None,
        typer.Option(
            help="A part of results that may differ, as result.info.pid; may be repeated.",
            rich_help_panel="Recordings of episodes",
        ),
    ] = None


def replay_episodes(path: Path, connection: ConnectionOptions, options: EpisodeOptions, as_json: bool) -> None:
    """Make the calls again and print where their outcomes differ.

    Raises:
        typer.Exit: Some do.
    """
    done = run_command(_replay(path, connection, options.ignore or []))
    if as_json:
        print_json(asdict(done))
    else:
        for each in done.differences:
            typer.echo(f"call {each.call}, {each.tool}: {each.path}: {_shown(each)}")
        typer.echo(f"calls: {done.calls}, differences: {len(done.differences)}")
    if done.differences:
        raise typer.Exit(1)


async def _replay(path: Path, connection: ConnectionOptions, ignore: list[str]) -> Replay:
    from sandmesh import TrainingSandboxAsync  # noqa: PLC0415 - help needs no SDK
    from sandmesh.sandbox.training.transcript import read_header  # noqa: PLC0415 - as above

    kind = str(read_header(path).get("sandbox_type") or "training")
    async with TrainingSandboxAsync(None, CALL_SECONDS, connection.address, connection.token, kind) as box:
        return await box.replay_episodes(path, ignore)


def _shown(difference: Difference) -> str:
    return f"{_cut(difference.recorded)} -> {_cut(difference.replayed)}"


def _cut(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
