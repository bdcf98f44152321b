"""`sandmeshd facade`: clients of another system, served by a process apart from the mesh."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_service
from sandmeshd.cli.terminal.option_groups import grouped

if TYPE_CHECKING:
    from sandmeshd.contracts.mesh_address import MeshAddress
    from sandmeshd.mesh.settings import MeshSettings

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class FacadeOptions:
    """Where a facade listens, and what it is opened with."""

    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="A host:port for HTTP, beyond loopback only with TLS; repeatable. By default SANDMESH_HTTP_LISTEN.",
            metavar="HOST:PORT",
        ),
    ] = None
    domain: Annotated[
        str | None,
        typer.Option(help="Of e2b: a domain that leads here, as of `sandmesh up --domain`.", metavar="NAME"),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, with its chain.", metavar="PEM")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None
    allow_insecure: Annotated[
        bool | None, typer.Option("--allow-insecure", help="Listen beyond loopback even without TLS.")
    ] = None
    secret_file: Annotated[
        Path | None,
        typer.Option(
            help="Of e2b: a file with the secret from which tokens of sandboxes are made, the same for all its doors.",
            metavar="PATH",
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """Return the options as settings; None where one is not set."""
        from sandmeshd.auth.service_identity import read_secret  # noqa: PLC0415 - as below

        return {
            "mesh_secret": read_secret(self.secret_file) if self.secret_file else None,
            "http_listen": tuple(self.listen) if self.listen else None,
            "e2b": True if self.domain else None,
            "e2b_domain": self.domain,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
            "allow_insecure": self.allow_insecure,
            "workers": 1,
        }


@commands.command(epilog="Example: sandmeshd facade e2b --base-url grpc://127.0.0.1:8570 --listen 127.0.0.1:8590")
@grouped
def facade(
    name: Annotated[
        str,
        typer.Argument(
            help="Whose clients are served: e2b, agentscope, swerex, sandboxfusion, jupyter, or another package's."
        ),
    ],
    connection: ConnectionOptions,
    options: FacadeOptions,
) -> None:
    """Serve clients of another system, as a client of a mesh that runs elsewhere.

    Where E2B's clients show no key, as at ports of sandboxes, its facade shows its own token, an administrator's.
    """
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.environment import log_remarks, read_settings  # noqa: PLC0415
    from sandmeshd.cli.config.traces import configure_traces  # noqa: PLC0415
    from sandmeshd.contracts.mesh_address import MeshAddress  # noqa: PLC0415
    from sandmeshd.runtime.processes.descriptors import set_process_limits  # noqa: PLC0415
    from sandmeshd.runtime.telemetry.logs import configure_logging  # noqa: PLC0415

    if options.domain is not None and name != "e2b":
        raise InvalidArgument("--domain is of `sandmeshd facade e2b`")
    settings = read_settings(None, None, **options.settings())
    configure_logging(settings.log_level, settings.log_format)
    configure_traces(f"sandmesh-{name}", settings.traces_per_second)
    log_remarks()
    set_process_limits()
    run_service(_serve(settings, name, MeshAddress(connection.require_address(), connection.token)))


async def _serve(settings: MeshSettings, name: str, mesh: MeshAddress) -> None:
    from sandmeshd.cli.mesh.start_report import describe_doors  # noqa: PLC0415 - as above
    from sandmeshd.mesh.facade import open_facade  # noqa: PLC0415 - as above

    async with open_facade(settings, name, mesh) as opened:
        for line in describe_doors(opened.e2b, opened.urls):
            typer.echo(line)
        typer.echo(f"serving {name}")
        await asyncio.Event().wait()
