"""`sandmesh`: what a person runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib.metadata import version as installed_version
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from sandmesh.errors import SandmeshError
from sandmeshd.cli.build import build_template
from sandmeshd.cli.environment import read_settings
from sandmeshd.cli.fleet import inspect, kill, ls
from sandmeshd.cli.lifetime import told_to_end, until
from sandmeshd.cli.progress import progress_bar
from sandmeshd.cli.running import exec_, python, run
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.runtime.logs import configure_logging

app = typer.Typer(
    help="Isolated computers on demand. `sandmesh up` runs a mesh on this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON line instead of text.")]
Listen = Annotated[
    list[str] | None, typer.Option(help="A loopback host:port to listen at beside the unix socket; port 0 takes one.")
]
Pool = Annotated[list[str] | None, typer.Option(help="TEMPLATE=COUNT sandboxes to keep ready; repeatable.")]


@app.command(epilog="Example: sandmesh up --listen 127.0.0.1:8570 --pool base=2")
def up(
    listen: Listen = None,
    pool: Pool = None,
    max_sandboxes: Annotated[int | None, typer.Option(help="The most sandboxes at once.")] = None,
    as_json: Json = False,
) -> None:
    """Run a mesh with all its services in this process, until Ctrl-C."""
    pools = dict(_pool(entry) for entry in pool) if pool else None
    settings = read_settings(listen=tuple(listen) if listen else None, pools=pools, max_sandboxes=max_sandboxes)
    configure_logging(settings.log_level)
    asyncio.run(_up(settings, as_json))


@app.command(epilog="Example: sandmesh build base")
def build(template: Annotated[str, typer.Argument(help="The template, or `all`.")] = "all") -> None:
    """Build what a template is made of, so that the first sandbox does not wait for it."""
    settings = read_settings()
    configure_logging("WARNING")
    asyncio.run(build_template(settings, template))


@app.command()
def version(as_json: Json = False) -> None:
    """Print the version."""
    number = installed_version("sandmesh")
    typer.echo(json.dumps({"version": number}) if as_json else f"sandmesh {number}")


app.command(name="run", epilog="Example: sandmesh run -- python3 -c 'print(6 * 7)'")(run)
app.command(name="exec", epilog="Example: sandmesh exec sb_... -- ls -l")(exec_)
app.command(epilog='Example: sandmesh python "import sys; sys.version"')(python)
app.command(epilog="Example: sandmesh ls --label team=red")(ls)
app.command(epilog="Example: sandmesh inspect sb_...")(inspect)
app.command(epilog="Example: sandmesh kill sb_...")(kill)


async def _up(settings: MeshSettings, as_json: bool) -> None:
    async with told_to_end() as ended:
        await until(ended, _serve(settings, as_json))


async def _serve(settings: MeshSettings, as_json: bool) -> None:
    console = Console(stderr=True)
    with progress_bar(console) as progress:
        mesh = open_mesh(settings, progress)
        running = await mesh.__aenter__()
    try:
        _announce(running.addresses, await running.http.open(), as_json)
        await asyncio.Event().wait()
    finally:
        await mesh.__aexit__(None, None, None)


def _announce(addresses: tuple[str, ...], http: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"addresses": addresses, "http": http}))
        return
    typer.echo("The mesh is up. Programs of this user find it by themselves; others connect by base_url:")
    for address in addresses:
        typer.echo(f"  {address if '://' in address else f'grpc://{address}'}")
    for address in http:
        typer.echo(f"  http://{address} (health, ports of sandboxes)")
    typer.echo("Ctrl-C ends it. Its sandboxes stay for the next start.")


def _pool(entry: str) -> tuple[str, int]:
    name, found, count = entry.partition("=")
    if not found or not count.isdigit():
        raise typer.BadParameter(f"{entry!r} is not TEMPLATE=COUNT, like base=2")
    return name, int(count)


def main() -> NoReturn:
    """Run the command line; what the mesh refuses is one line on standard error and status 1."""
    try:
        app()
    except SandmeshError as error:
        fix = error.facts.get("fix")
        Console(stderr=True).print(f"[bold red]{error.reason}[/] {error.message}", highlight=False)
        if fix and fix not in error.message:
            Console(stderr=True).print(f"[bold]fix:[/] {fix}", highlight=False)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
