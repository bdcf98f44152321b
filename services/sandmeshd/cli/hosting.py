"""Runs a whole mesh in this process, for `sandmesh up`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import typer
from rich.console import Console

from sandmeshd.cli.environment import read_settings
from sandmeshd.cli.output import print_json
from sandmeshd.cli.progress import progress_bar
from sandmeshd.mesh import open_mesh
from sandmeshd.runtime.logs import configure_logging


async def host(given: dict[str, object], *, as_json: bool) -> None:
    """Run a mesh until this is cancelled, and say when it is ready and where."""
    settings = read_settings(**given)
    configure_logging(settings.log_level)
    async with AsyncExitStack() as stack:
        with progress_bar(Console(stderr=True)) as progress:
            running = await stack.enter_async_context(open_mesh(settings, progress))
        _announce(running.addresses, await running.http.open(), as_json)
        await asyncio.Event().wait()


def _announce(addresses: tuple[str, ...], http: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json({"addresses": addresses, "http": http})
        return
    typer.echo("The mesh is up. Programs of this user find it by themselves; others connect by base_url:")
    for address in addresses:
        typer.echo(f"  {address if '://' in address else f'grpc://{address}'}")
    for address in http:
        typer.echo(f"  http://{address} (health, ports of sandboxes)")
    typer.echo("Ctrl-C ends it. Its sandboxes stay for the next start.")
