"""Starts a mesh on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from sandmeshd.cli.grouping import grouped
from sandmeshd.cli.lifetime import run_until_told
from sandmeshd.cli.options import Answer, Json, Shape, pairs

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Wanted:
    """What a mesh is told on the command line; what is not stated comes from the environment."""

    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="A loopback host:port to listen at beside the unix socket; port 0 takes a free one; repeatable.",
            metavar="HOST:PORT",
        ),
    ] = None
    pool: Annotated[
        list[str] | None,
        typer.Option(help="Sandboxes of a template to keep ready; repeatable.", metavar="TEMPLATE=COUNT"),
    ] = None
    max_sandboxes: Annotated[
        int | None, typer.Option(help="The most sandboxes at once, those in pools included.", metavar="COUNT")
    ] = None

    def settings(self) -> dict[str, object]:
        """Give what was stated, as settings."""
        return {
            "listen": tuple(self.listen) if self.listen else None,
            "pools": {name: _count(name, text) for name, text in pairs(self.pool, "TEMPLATE=COUNT").items()} or None,
            "max_sandboxes": self.max_sandboxes,
        }


@commands.command(epilog="Examples: sandmesh up | sandmesh up --listen 127.0.0.1:8570 --pool base=2")
@grouped
def up(wanted: Wanted, output: Answer = Shape.TEXT, as_json: Json = False) -> None:
    """Run a mesh with all its services in this process, until Ctrl-C."""
    # The services take a second to import, which other commands need not wait for.
    from sandmeshd.cli import hosting  # noqa: PLC0415

    run_until_told(hosting.host(wanted.settings(), as_json=as_json or output is Shape.JSON))


def _count(name: str, text: str) -> int:
    if not text.isdigit():
        raise typer.BadParameter(f"'{name}={text}' is not TEMPLATE=COUNT, like base=2")
    return int(text)
