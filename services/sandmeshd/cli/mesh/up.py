"""Starts a mesh on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Extensions, Json, Shape, Templates, pairs
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Wanted:
    """What a mesh is told on the command line; what is not stated comes from the environment, then the file."""

    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="A host:port to listen at beside the unix socket, beyond loopback only with TLS; repeatable.",
            metavar="HOST:PORT",
        ),
    ] = None
    pool: Annotated[
        list[str] | None,
        typer.Option(help="Sandboxes of a template to keep ready; repeatable.", metavar="TEMPLATE=COUNT"),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="A file with settings, SANDMESH_NAME=VALUE a line; the environment goes before it.", metavar="FILE"
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="How many processes serve the addresses of --listen.", metavar="COUNT")
    ] = None
    max_sandboxes: Annotated[
        int | None, typer.Option(help="The most sandboxes at once, those in pools included.", metavar="COUNT")
    ] = None

    extension: Extensions = None
    template: Templates = None
    keep: Annotated[
        bool | None,
        typer.Option("--keep/--no-keep", help="Sandboxes outlive the mesh and are there at its next start."),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="The certificate of those addresses, with its chain.", metavar="PEM")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None
    require_token: Annotated[
        bool | None, typer.Option(help="Ask clients at those addresses for a token.", show_default="as TLS says")
    ] = None
    allow_insecure: Annotated[
        bool | None, typer.Option("--allow-insecure", help="Listen beyond loopback without TLS, all the same.")
    ] = None

    def settings(self) -> dict[str, object]:
        """Give what was stated, as settings."""
        return {
            "config": self.config,
            "workers": self.workers,
            "listen": tuple(self.listen) if self.listen else None,
            "pools": {name: _count(name, text) for name, text in pairs(self.pool, "TEMPLATE=COUNT").items()} or None,
            "max_sandboxes": self.max_sandboxes,
            "extensions": tuple(self.extension) if self.extension else None,
            "templates": tuple(self.template) if self.template else None,
            "keep_sandboxes": self.keep,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
            "require_token": self.require_token,
            "allow_insecure": self.allow_insecure,
        }

    def arguments(self) -> list[str]:
        """Give what was stated, as a command line says it in any directory."""
        listens = [argument for address in self.listen or () for argument in ("--listen", address)]
        pools = [argument for pool in self.pool or () for argument in ("--pool", pool)]
        files = {"--config": self.config, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        valued: dict[str, object] = {"--workers": self.workers, "--max-sandboxes": self.max_sandboxes}
        valued |= {option: None if path is None else path.absolute() for option, path in files.items()}
        stated = [text for option, value in valued.items() if value is not None for text in (option, str(value))]
        switches = {"keep": self.keep, "require-token": self.require_token}
        switched = [f"--{name}" if on else f"--no-{name}" for name, on in switches.items() if on is not None]
        extensions = [argument for name in self.extension or () for argument in ("--extension", absolute(name))]
        templates = [argument for path in self.template or () for argument in ("--template", absolute(path))]
        return [
            *listens,
            *pools,
            *stated,
            *extensions,
            *templates,
            *switched,
            *(["--allow-insecure"] if self.allow_insecure else []),
        ]


@commands.command(
    epilog="Examples: sandmesh up | sandmesh up -d --pool base=2 | sandmesh up --listen 127.0.0.1:8570 --keep"
)
@grouped
def up(
    wanted: Wanted,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready; it goes on running.")
    ] = False,
    output: Answer = Shape.TEXT,
    as_json: Json = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True, help="Where the readiness is written.")] = None,
) -> None:
    """Run a mesh with all its services on this machine, until Ctrl-C or `sandmesh down`."""
    # The services take a second to import, which other commands need not wait for.
    from sandmeshd.cli.mesh import start as starting  # noqa: PLC0415

    json = as_json or output is Shape.JSON
    if detach:
        starting.start_apart(wanted.settings(), wanted.arguments(), as_json=json)
    else:
        starting.start_here(wanted.settings(), ready_fd, as_json=json)


@commands.command(epilog="Examples: sandmesh down | sandmesh down --keep")
def down(
    keep: Annotated[bool, typer.Option("--keep", help="Leave its sandboxes for the next start.")] = False,
    timeout: Annotated[float, typer.Option(help="How long it may take to end.", metavar="SECONDS")] = 30.0,
    output: Answer = Shape.TEXT,
) -> None:
    """End this user's local mesh and remove its sandboxes; what a killed one left, too."""
    from sandmeshd.cli.mesh import down as ending  # noqa: PLC0415

    done = run_to_end(ending.end_mesh(keep=keep, seconds=timeout))
    if output is Shape.JSON:
        print_json({"mesh_id": done.mesh_id, "pid": done.pid, "removed": done.removed, "kept": done.kept})
        return
    if done.pid is not None:
        typer.echo(f"The mesh {done.mesh_id} (process {done.pid}) ended.")
    else:
        typer.echo(f"No mesh {done.mesh_id} of this user runs here.")
    if done.removed:
        typer.echo(f"Sandboxes that were removed: {done.removed}")
    if done.kept:
        typer.echo(f"Sandboxes that stay for the next start: {done.kept}")


def _count(name: str, text: str) -> int:
    if not text.isdigit():
        raise typer.BadParameter(f"'{name}={text}' is not TEMPLATE=COUNT, like base=2")
    return int(text)


def absolute(stated: str | Path) -> str:
    """Give a file's path from the root, for a process that may start elsewhere; a module's name as it is."""
    return str(Path(stated).resolve()) if Path(stated).is_file() else str(stated)
