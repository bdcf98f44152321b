"""Sandboxes as tools for clients of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import SecretStr, ValidationError

from sandmesh.errors import InvalidArgument, MeshUnavailable, RuntimeUnavailable
from sandmeshd.cli.run.spec import Making
from sandmeshd.cli.terminal.lifetime import run_to_end, run_until_told
from sandmeshd.cli.terminal.mesh_option import Where, own_user
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Timeout, limits, pairs
from sandmeshd.runtime.logs import configure_logging

if TYPE_CHECKING:
    from sandmeshd.facades.mcp import AdapterSettings, HttpSettings

INSTALL = 'pip install "sandmesh[mcp]"'

commands = typer.Typer(rich_markup_mode=None)
service_commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Offering:
    """What an MCP client gets."""

    session: Annotated[
        str | None,
        typer.Option(help="Use the sandbox of this session, which stays; else one ends with its client.", metavar="ID"),
    ] = None
    user: Annotated[str | None, typer.Option(help="Whose session; by default yours, or the token's.", metavar="ID")] = (
        None
    )
    mcp_config: Annotated[
        Path | None,
        typer.Option(help='Run these MCP servers inside the sandbox: {"mcpServers": {...}}.', metavar="JSON"),
    ] = None
    manage: Annotated[bool, typer.Option("--manage", help="Offer tools that list, make, switch and end sandboxes.")] = (
        False
    )
    eager: Annotated[
        bool, typer.Option("--eager", help="Make the sandbox when a client connects, not at its first call.")
    ] = False
    log_level: Annotated[
        str, typer.Option(envvar="SANDMESH_LOG_LEVEL", help="From which level on to log, to standard error.")
    ] = "WARNING"


@commands.command(epilog="Example: sandmesh mcp --type filesystem --network packages")
@grouped
def mcp(where: Where, making: Making, offering: Offering, timeout: Timeout = 3000) -> None:
    """Serve an MCP client over standard input and output: a sandbox's tools, and its files as resources.

    The sandbox is made at the first call and ends with the client: see docs/mcp-adapter.md.
    """
    settings = adapter_settings(where, making, offering, timeout)
    # Its libraries take a second to import, which other commands need not wait for.
    from sandmeshd.facades.mcp.stdio import serve_stdio  # noqa: PLC0415

    run_to_end(serve_stdio(settings))


@dataclass(frozen=True)
class Doors:
    """Where to listen for HTTP, and who may come."""

    listen: Annotated[
        list[str] | None,
        typer.Option(help="A host:port, beyond loopback only with TLS; repeatable.", metavar="HOST:PORT"),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, with its chain.", metavar="PEM")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None
    require_token: Annotated[
        bool | None, typer.Option(help="Ask clients for a token of the mesh.", show_default="as TLS says")
    ] = None
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Listen beyond loopback without TLS, all the same.")
    ] = False
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name that clients may call it by beside its addresses; repeatable.", metavar="HOST"),
    ] = None
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin of web pages that may use it; repeatable.", metavar="https://HOST"),
    ] = None
    idle_timeout: Annotated[
        float, typer.Option(help="How long a client may be away until its sandbox ends.", metavar="SECONDS")
    ] = 600.0
    max_sessions: Annotated[int, typer.Option(help="The most clients at once.", metavar="COUNT")] = 1000

    def settings(self) -> HttpSettings:
        """Give it as settings."""
        from sandmeshd.facades.mcp import HttpSettings  # noqa: PLC0415 - not where no adapter runs

        return HttpSettings(
            listen=tuple(self.listen or ("127.0.0.1:8580",)),
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            require_token=self.require_token,
            allow_insecure=self.allow_insecure,
            allowed_hosts=tuple(self.allowed_host or ()),
            allowed_origins=tuple(self.allowed_origin or ()),
            idle_timeout=self.idle_timeout,
            max_sessions=self.max_sessions,
        )


@service_commands.command(
    name="mcp", epilog="Example: sandmeshd mcp --base-url grpc://127.0.0.1:8570 --listen 127.0.0.1:8580"
)
@grouped
def serve(where: Where, making: Making, offering: Offering, doors: Doors, timeout: Timeout = 3000) -> None:
    """Serve MCP clients over streamable HTTP at /mcp: to each a sandbox of its own.

    A client shows a token of the mesh as `Authorization: Bearer ...` where one is asked for; what it does is done as
    that token's user.
    """
    adapter = adapter_settings(where, making, offering, timeout)
    if adapter.base_url is None:
        fix = "start one with `sandmesh up -d`, or name one by --base-url or SANDMESH_ADDRESS"
        raise MeshUnavailable(f"no mesh of this user runs here: {fix}", {"fix": fix})
    with _explained():
        http = doors.settings()
    run_until_told(_served(adapter, http))


async def _served(adapter: AdapterSettings, http: HttpSettings) -> None:
    from sandmeshd.facades.mcp.http import open_http_adapter  # noqa: PLC0415 - as above

    async with open_http_adapter(adapter, http) as urls:
        typer.echo("serving at " + " ".join(urls))
        await asyncio.Event().wait()


def adapter_settings(where: Where, making: Making, offering: Offering, timeout: float) -> AdapterSettings:
    """Give what was stated as settings, with logs that go to standard error.

    Raises:
        InvalidArgument: Two things that were stated exclude each other.
        RuntimeUnavailable: What the adapter needs is not installed.
    """
    configure_logging(offering.log_level)
    if find_spec("mcp") is None:
        raise RuntimeUnavailable(f"the MCP adapter is not installed: {INSTALL}", {"fix": INSTALL})
    from sandmeshd.facades.mcp import AdapterSettings  # noqa: PLC0415 - as above

    with _explained():
        return AdapterSettings(
            sandbox_type=making.template,
            base_url=find_address(where.base_url),
            bearer_token=SecretStr(where.token) if where.token else None,
            session=offering.session,
            user=offering.user or (None if where.token else own_user()),
            env=pairs(making.env),
            limits=limits(making.limit),
            network=tuple(making.network) if making.network else None,
            mcp_servers=_mcp_servers(offering.mcp_config),
            manage=offering.manage,
            eager=offering.eager,
            timeout=timeout,
        )


def _mcp_servers(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        config: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--mcp-config {path} cannot be read: {error}", {"file": str(path)}) from None
    servers: object = cast("dict[str, object]", config).get("mcpServers") if isinstance(config, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise InvalidArgument(f'--mcp-config {path} is no {{"mcpServers": {{name: ...}}}}', {"file": str(path)})
    return cast("dict[str, Any]", servers)


@contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except ValidationError as error:
        problems = "; ".join(str(one["msg"]) for one in error.errors(include_url=False, include_input=False))
        raise InvalidArgument(problems) from None
