"""`sandmesh console`: serves the console of a mesh, and prints a link that opens it once."""

from __future__ import annotations

import asyncio
import os
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_service
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmeshd.runtime.http import Certificate

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class ConsoleOptions:
    """Where the console is served."""

    listen: Annotated[
        str, typer.Option(help="Where it is served; beyond loopback only with TLS.", metavar="HOST:PORT")
    ] = "127.0.0.1:0"
    origin: Annotated[
        str | None, typer.Option(help="What browsers call it, where a proxy is before it.", metavar="URL")
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, with its chain.", metavar="PEM")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None

    def certificate(self) -> Certificate | None:
        """Return the certificate; None without one.

        Raises:
            InvalidArgument: One of its two files is missing.
        """
        from sandmeshd.runtime.http import Certificate  # noqa: PLC0415 - help needs none of it

        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidArgument("give --tls-cert and --tls-key, or neither")
        return None if self.tls_cert is None or self.tls_key is None else Certificate(self.tls_cert, self.tls_key)


@commands.command(epilog="Examples: sandmesh console | SANDMESH_TOKEN=... sandmesh console --base-url grpc://mesh:8570")
@grouped
def console(
    connection: ConnectionOptions,
    options: ConsoleOptions,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Links that only show, whatever the token allows.")
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in this machine's browser.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Serve pages that show the mesh, and print a link to them. It runs until Ctrl-C.

    The link opens them once, with what the command's token allows. Enter prints another link.
    """

    def show(link: str) -> None:
        print_json({"url": link}) if output is Format.JSON else typer.echo(link)

    run_service(_serve(connection, options, show, webbrowser.open if open_browser else None, read_only=read_only))


async def _serve(
    connection: ConnectionOptions,
    options: ConsoleOptions,
    show: Callable[[str], None],
    opens: Callable[[str], object] | None,
    *,
    read_only: bool,
) -> None:
    from sandmeshd.facades.console.app import open_console  # noqa: PLC0415 - as above

    certificate, address = options.certificate(), connection.require_address()
    async with connection.mesh() as mesh:
        await mesh.whoami()  # A mesh that does not answer, and a token that it refuses, are told here.
    async with open_console(address, options.listen, certificate, options.origin) as served:
        link = served.link(connection.token, read_only=read_only)
        show(link)
        note = "This link opens the console once, within five minutes. Enter prints another; Ctrl-C ends."
        typer.echo(note, err=True)
        if opens is not None:
            await asyncio.to_thread(opens, link)
        with _on_enter(lambda: show(served.link(connection.token, read_only=read_only))):
            await asyncio.Event().wait()


@contextmanager
def _on_enter(action: Callable[[], None]) -> Generator[None]:
    """Run an action at each line that a person types until the block ends."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if os.read(0, 4096):
            action()
        else:
            loop.remove_reader(0)

    if not os.isatty(0):
        yield
        return
    loop.add_reader(0, read)
    try:
        yield
    finally:
        loop.remove_reader(0)
