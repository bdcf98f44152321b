"""`sandmeshd`: one service of a mesh, for meshes whose services run apart.

Settings come from the same SANDMESH_ variables as for `sandmesh up`; what the services of one mesh must share is
SANDMESH_MESH_ID and the store: SANDMESH_REDIS_URL, or on one machine the embedded one of their common state directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import InvalidArgument
from sandmeshd.allocator import open_allocator
from sandmeshd.auth.channels import open_channel, open_channels
from sandmeshd.auth.service_identity import identity_required, read_secret
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.cli import agent, mcp
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.terminal.exit_codes import finish
from sandmeshd.cli.terminal.lifetime import run_until_told
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Extensions, Templates
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.gateway import open_gateway
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.app import allocator_settings, gateway_settings, identities
from sandmeshd.mesh.driver import open_driver, with_storage
from sandmeshd.runtime.addresses import check_private
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.heap import keep_freed_memory
from sandmeshd.runtime.http import HttpAddresses
from sandmeshd.runtime.http.metrics import metrics_page
from sandmeshd.runtime.http.server import open_http
from sandmeshd.runtime.locks import held
from sandmeshd.runtime.logs import configure_logging
from sandmeshd.runtime.metrics import Observed
from sandmeshd.runtime.rpc.observation import observed
from sandmeshd.runtime.rpc.registrations import driver_service, sandbox_service, session_service, token_service
from sandmeshd.runtime.rpc.server import Registration, open_server
from sandmeshd.store import open_store
from sandmeshd.templates import open_catalog

app = typer.Typer(
    help="One service of a mesh. Each runs until SIGINT or SIGTERM and prints its address when it serves.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Listen = Annotated[str, typer.Option(help="unix:///path, or a host:port (port 0 takes a free one).")]
Listens = Annotated[list[str], typer.Option(help="unix:///path or a host:port; repeatable.")]
Config = Annotated[
    Path | None,
    typer.Option(
        envvar="SANDMESH_CONFIG", help="A file with settings; the environment goes before it.", metavar="FILE"
    ),
]
SecretFile = Annotated[
    Path | None, typer.Option(help="A file with the secret that all services of the mesh share.", metavar="PATH")
]
Allocators = Annotated[
    list[str], typer.Option(help="An allocator's address; repeatable: where one does not answer, the next is asked.")
]
Metrics = Annotated[
    str | None,
    typer.Option(help="Serve /metrics for Prometheus here, to whoever reaches the address.", metavar="HOST:PORT"),
]
Brokers = Annotated[list[str], typer.Option(help="A broker's address; repeatable, as --allocator.")]


@dataclass(frozen=True)
class Making:
    """What a driver is told of its node, and of the templates that it makes sandboxes of."""

    node_id: Annotated[
        str | None, typer.Option(help="The node that this driver is; each of a mesh needs its own.", metavar="NAME")
    ] = None
    extension: Extensions = None
    template: Templates = None

    def settings(self) -> dict[str, object]:
        """Give what was stated, as settings."""
        return {
            "node_id": self.node_id,
            "extensions": tuple(self.extension or ()) or None,
            "templates": tuple(self.template or ()) or None,
        }


@app.command(epilog="Example: sandmeshd driver bubblewrap --listen unix:///run/sandmesh/driver")
@grouped
def driver(
    name: Annotated[str, typer.Argument(help="The driver.")],
    listen: Listen,
    making: Making,
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve a driver: the one place that knows a runtime."""
    settings = _settings(secret_file, **making.settings())
    run_until_told(_with_metrics(metrics, settings, lambda measured: _driver(settings, name, listen, measured)))


@app.command(
    epilog="Example: sandmeshd allocator --listen 127.0.0.1:8571 --driver bubblewrap=unix:///run/sandmesh/driver"
)
def allocator(
    listen: Listen,
    driver: Annotated[
        list[str], typer.Option(help="NAME=ADDRESS of a driver, each with a name of its own; repeatable.")
    ],
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve the allocator: the owner of sandboxes, pools, leases and ports."""
    settings, drivers = _settings(secret_file), _by_name(driver)
    run_until_told(_with_metrics(metrics, settings, lambda measured: _allocator(settings, listen, drivers, measured)))


@app.command(epilog="Example: sandmeshd broker --listen 127.0.0.1:8572 --allocator 127.0.0.1:8571")
def broker(listen: Listen, allocator: Allocators, secret_file: SecretFile = None, metrics: Metrics = None) -> None:
    """Serve the broker: the owner of sessions."""
    settings = _settings(secret_file)
    run_until_told(_with_metrics(metrics, settings, lambda measured: _broker(settings, listen, allocator, measured)))


@app.command(
    epilog="Example: sandmeshd gateway --listen 127.0.0.1:8570 --allocator 127.0.0.1:8571 --broker 127.0.0.1:8572"
)
def gateway(
    listen: Listens,
    allocator: Allocators,
    broker: Brokers,
    secret_file: SecretFile = None,
    metrics: Metrics = None,
) -> None:
    """Serve the gateway: the one public address."""
    settings = _settings(secret_file)
    run_until_told(
        _with_metrics(metrics, settings, lambda measured: _gateway(settings, listen, (allocator, broker), measured))
    )


app.add_typer(agent.commands)
app.add_typer(mcp.service_commands)


async def _with_metrics(
    address: str | None, settings: MeshSettings, serve: Callable[[Observed], Awaitable[None]]
) -> None:
    measured = Observed()
    async with AsyncExitStack() as stack:
        if address is not None:
            pages = [metrics_page(measured, to_all=True)]
            bound = await stack.enter_async_context(open_http(HttpAddresses((address,)), pages, None))
            typer.echo("metrics at " + " ".join(bound))
        with full_disk_explained(settings.state_directory):
            await serve(measured)


async def _driver(settings: MeshSettings, name: str, listen: str, measured: Observed) -> None:
    settings.paths.make()
    async with AsyncExitStack() as stack:
        # Two drivers of one kind on one node would each take the other's sandboxes for their own.
        await stack.enter_async_context(held(settings.paths.node_state / f"driver-{name}.lock", "driver of this node"))
        book = open_catalog(settings.extensions, settings.templates)
        bare = await stack.enter_async_context(open_driver(settings.model_copy(update={"driver": name}), book))
        local = await stack.enter_async_context(with_storage(bare, settings.storage))
        await stack.enter_async_context(_serving(settings, listen, [driver_service(DriverServicer(local))], measured))
        await asyncio.Event().wait()


async def _allocator(settings: MeshSettings, listen: str, addresses: dict[str, str], measured: Observed) -> None:
    settings.paths.make()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        proof = identities(settings)
        drivers = {
            name: RemoteDriver(await stack.enter_async_context(open_channel(address, proof)))
            for name, address in addresses.items()
        }
        servicer = await stack.enter_async_context(
            open_allocator(allocator_settings(settings), store, drivers, measured)
        )
        await stack.enter_async_context(_serving(settings, listen, [sandbox_service(servicer)], measured))
        await asyncio.Event().wait()


async def _broker(settings: MeshSettings, listen: str, allocators: Sequence[str], measured: Observed) -> None:
    settings.paths.make()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.store))
        channel = await stack.enter_async_context(open_channels(allocators, identities(settings)))
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        servicer = await stack.enter_async_context(open_broker(BrokerSettings(), store, stub))
        services = [session_service(servicer), token_service(TokenServicer(TokenRecords(store)))]
        await stack.enter_async_context(_serving(settings, listen, services, measured))
        await asyncio.Event().wait()


async def _gateway(
    settings: MeshSettings, listen: Sequence[str], behind: tuple[Sequence[str], Sequence[str]], measured: Observed
) -> None:
    allocators, brokers = behind
    settings.paths.make()
    proof = identities(settings)
    async with (
        open_channels(allocators, proof) as to_allocator,
        open_channels(brokers, proof) as to_broker,
        open_gateway(gateway_settings(settings, tuple(listen)), to_allocator, to_broker, measured) as listening,
    ):
        http = await listening.http.open()
        _announce(listening.addresses)
        typer.echo("HTTP at " + " ".join(http))
        await asyncio.Event().wait()


@asynccontextmanager
async def _serving(
    settings: MeshSettings, address: str, services: Sequence[Registration], measured: Observed
) -> AsyncGenerator[None]:
    check_private(address, has_secret=settings.mesh_secret is not None)
    arounds = [observed(measured.rpcs), identity_required(identities(settings))]
    async with open_server([address], services, arounds) as listening:
        _announce(listening.addresses)
        yield


def _announce(addresses: Sequence[str]) -> None:
    typer.echo("serving at " + " ".join(addresses))


def _settings(secret_file: Path | None, **given: Any) -> MeshSettings:
    settings = read_settings(mesh_secret=read_secret(secret_file) if secret_file else None, **given)
    configure_logging(settings.log_level, settings.log_format)
    keep_freed_memory()
    return settings


def _by_name(entries: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, address in map(_named, entries):
        if name in found:
            raise InvalidArgument(f"two drivers are called {name}: call one --driver {name}-2={address}")
        found[name] = address
    return found


def _named(entry: str) -> tuple[str, str]:
    name, found, address = entry.partition("=")
    if not found or not name or not address:
        raise InvalidArgument(f"--driver {entry} is not NAME=ADDRESS, like bubblewrap=unix:///run/sandmesh/driver")
    return name, address


def main() -> NoReturn:
    """Run the command line."""
    finish(app, "sandmeshd")


if __name__ == "__main__":
    main()
