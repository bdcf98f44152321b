"""`sandmesh replay`: what was recorded, shown or made again. The first line of a recording says what it is."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument, NotFound
from sandmeshd.cli.replay import episodes
from sandmeshd.cli.replay.page import write_page
from sandmeshd.cli.replay.trace import FORMAT, TRACE_FILE, read_format, read_trace
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh replay --open recordings/one | sandmesh replay episodes.jsonl")
@grouped
def replay(
    recording: Annotated[
        Path,
        typer.Argument(
            help="The folder that box.desktop.record() or box.browser.record() made, or its trace; or the file of "
            "box.record_episodes().",
            metavar="PATH",
        ),
    ],
    connection: ConnectionOptions,
    options: episodes.EpisodeOptions,
    page: Annotated[
        Path | None, typer.Option("--page", "-p", help="Where the page is written; by default beside the trace.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Write a page that shows a recording: its video, and each call with a picture of what it led to.

    A recording of episodes is replayed instead: its calls are made again in a new sandbox, and what differs is printed.
    """
    path = recording / TRACE_FILE if recording.is_dir() else recording
    if not path.is_file():
        raise NotFound(f"there is no recording at {recording}: pass the folder of one, or its {TRACE_FILE}", {})
    found = read_format(path)
    if found == episodes.FORMAT:
        episodes.replay_episodes(path, connection, options, output is Format.JSON)
        return
    if found != FORMAT:
        what = f"its format is {found}" if found else "its first line is not that of a recording"
        raise InvalidArgument(f"{path} cannot be shown: {what}; pass the {TRACE_FILE} of a recording", {})
    target = page or path.with_name("replay.html")
    trace = read_trace(path)
    try:
        write_page(trace, target)
    except OSError as error:
        raise InvalidArgument(
            f"the page cannot be written to {target}: {error.strerror}; pass --page FILE", {}
        ) from None
    if output is Format.JSON:
        print_json({"page": str(target), "steps": len(trace.steps), "unreadable": trace.unreadable})
    else:
        typer.echo(str(target))
    if show:
        webbrowser.open(target.resolve().as_uri())
