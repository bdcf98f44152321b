"""`sandmesh certificate`: a certificate for trials of TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import AlreadyExists
from sandmeshd.cli.terminal.options import Format, Output
from sandmeshd.cli.terminal.output import print_json
from sandmeshd.runtime.certificates import FILES, issue_certificate, write_certificate

commands = typer.Typer(rich_markup_mode=None)

NAMES = ("localhost", "127.0.0.1", "::1")


@commands.command(epilog="Example: sandmesh certificate --name mesh.example --directory tls")
def certificate(
    name: Annotated[
        list[str] | None, typer.Option(help="A further host name or address of the mesh; repeatable.")
    ] = None,
    directory: Annotated[Path, typer.Option(help="Where the files are written.", metavar="PATH")] = Path(),
    days: Annotated[int, typer.Option(help="How long it is valid.", min=1, max=825, metavar="DAYS")] = 90,
    output: Output = Format.TEXT,
) -> None:
    """Create a certificate for trials, its key and the authority that signed it: cert.pem, key.pem and ca.pem.

    The authority's own key is not kept. In production, use a certificate of an authority that clients already trust.
    """
    paths = {kind: directory / file for kind, file in FILES.items()}
    for path in paths.values():
        if path.exists():
            raise AlreadyExists(f"{path} already exists: remove it or choose another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    write_certificate(issue_certificate((*NAMES, *(name or ())), days), paths)
    if output is Format.JSON:
        print_json({kind: str(path) for kind, path in paths.items()})
        return
    typer.echo(f"sandmesh up --listen 0.0.0.0:8570 --tls-cert {paths['cert']} --tls-key {paths['key']}")
    typer.echo(f"Clients take {paths['ca']} as SANDMESH_CA_FILE or ca_cert=...", err=True)
