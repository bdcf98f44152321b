"""Commands that run one service of a mesh whose services run apart.

Settings come from the same SANDMESH_ variables as for `sandmesh up`. The services of a mesh share SANDMESH_MESH_ID and
the store: SANDMESH_REDIS_URL, or on one machine the embedded one of their common state directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Extensions, Templates

if TYPE_CHECKING:
    from sandmeshd.mesh.services import ServiceOptions

commands = typer.Typer(rich_markup_mode=None)

Listen = Annotated[str, typer.Option(help="unix:///path, or a host:port (port 0 takes a free one).")]
Listens = Annotated[list[str], typer.Option(help="unix:///path or a host:port; repeatable.")]
SecretFile = Annotated[
    Path | None, typer.Option(help="A file with the secret that all services of the mesh share.", metavar="PATH")
]
Allocators = Annotated[
    list[str], typer.Option(help="An allocator's address; repeatable: where one does not answer, the next is used.")
]
Metrics = Annotated[
    str | None,
    typer.Option(help="Serve /metrics for Prometheus here, without authentication.", metavar="HOST:PORT"),
]
Brokers = Annotated[list[str], typer.Option(help="A broker's address; repeatable, as --allocator.")]


@dataclass(frozen=True)
class DriverOptions:
    """The node of a driver, and the templates of its sandboxes."""

    node_id: Annotated[
        str | None, typer.Option(help="The node's id, different for each driver of a mesh.", metavar="NAME")
    ] = None
    extension: Extensions = None
    template: Templates = None

    def settings(self) -> dict[str, object]:
        """Return the options as settings; None where one is not set."""
        return {
            "node_id": self.node_id,
            "extensions": tuple(self.extension or ()) or None,
            "templates": tuple(self.template or ()) or None,
        }


# The services take a second to import, which help and completion need not wait for.


@commands.command(epilog="Example: sandmeshd driver bubblewrap --listen unix:///run/sandmesh/driver")
@grouped
def driver(
    name: Annotated[str, typer.Argument(help="The driver.")],
    listen: Listen,
    options: DriverOptions,
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve a driver, which runs the sandboxes of a node."""
    from sandmeshd.cli.terminal.lifetime import run_service  # noqa: PLC0415
    from sandmeshd.mesh.services import run_driver  # noqa: PLC0415

    run_service(run_driver(_service_options("driver", secret_file, metrics, **options.settings()), name, listen))


@commands.command(
    epilog="Example: sandmeshd allocator --listen 127.0.0.1:8571 --driver bubblewrap=unix:///run/sandmesh/driver"
)
def allocator(
    listen: Listen,
    driver: Annotated[list[str], typer.Option(help="NAME=ADDRESS of a driver, each with its own name; repeatable.")],
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve the allocator, which owns sandboxes, pools, leases and ports."""
    from sandmeshd.cli.terminal.lifetime import run_service  # noqa: PLC0415
    from sandmeshd.mesh.services import run_allocator  # noqa: PLC0415

    options, drivers = _service_options("allocator", secret_file, metrics), _parse_drivers(driver)
    run_service(run_allocator(options, listen, drivers))


@commands.command(epilog="Example: sandmeshd broker --listen 127.0.0.1:8572 --allocator 127.0.0.1:8571")
def broker(listen: Listen, allocator: Allocators, secret_file: SecretFile = None, metrics: Metrics = None) -> None:
    """Serve the broker, which owns sessions."""
    from sandmeshd.cli.terminal.lifetime import run_service  # noqa: PLC0415
    from sandmeshd.mesh.services import run_broker  # noqa: PLC0415

    run_service(run_broker(_service_options("broker", secret_file, metrics), listen, allocator))


@commands.command(
    epilog="Example: sandmeshd gateway --listen 127.0.0.1:8570 --allocator 127.0.0.1:8571 --broker 127.0.0.1:8572"
)
def gateway(
    listen: Listens,
    allocator: Allocators,
    broker: Brokers,
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve the gateway, the mesh's only public address."""
    from sandmeshd.cli.terminal.lifetime import run_service  # noqa: PLC0415
    from sandmeshd.mesh.services import run_gateway  # noqa: PLC0415

    run_service(run_gateway(_service_options("gateway", secret_file, metrics), listen, allocator, broker))


def _service_options(service: str, secret_file: Path | None, metrics: str | None, **arguments: Any) -> ServiceOptions:
    from sandmeshd.auth.service_identity import read_secret  # noqa: PLC0415
    from sandmeshd.cli.config.environment import log_remarks, read_settings  # noqa: PLC0415
    from sandmeshd.cli.config.traces import configure_traces  # noqa: PLC0415
    from sandmeshd.mesh.services import ServiceOptions  # noqa: PLC0415
    from sandmeshd.runtime.processes.descriptors import set_process_limits  # noqa: PLC0415
    from sandmeshd.runtime.processes.heap import tune_heap  # noqa: PLC0415
    from sandmeshd.runtime.telemetry.logs import configure_logging  # noqa: PLC0415

    settings = read_settings(mesh_secret=read_secret(secret_file) if secret_file else None, **arguments)
    configure_logging(settings.log_level, settings.log_format)
    configure_traces(f"sandmesh-{service}", settings.traces_per_second)
    log_remarks()
    tune_heap()
    set_process_limits()
    return ServiceOptions(settings, metrics, typer.echo)


def _parse_drivers(entries: Sequence[str]) -> dict[str, str]:
    drivers: dict[str, str] = {}
    for entry in entries:
        name, _, address = entry.partition("=")
        if not name or not address:
            raise InvalidArgument(f"--driver {entry} is not NAME=ADDRESS, like bubblewrap=unix:///run/sandmesh/driver")
        if name in drivers:
            raise InvalidArgument(f"two drivers are called {name}: call one --driver {name}-2={address}")
        drivers[name] = address
    return drivers
