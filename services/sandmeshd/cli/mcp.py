"""`sandmesh mcp` and `sandmeshd mcp`: sandboxes as tools for clients of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import SecretStr, ValidationError

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmesh.replies import REPLY_CHARACTERS, read_reply_characters
from sandmeshd.cli.mcp_clients.commands import add_commands
from sandmeshd.cli.packages import explain_package
from sandmeshd.cli.run.sandbox_options import SandboxOptions
from sandmeshd.cli.terminal.connection import ConnectionOptions, own_user
from sandmeshd.cli.terminal.lifetime import run_command, run_service
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Timeout, parse_limits, parse_pairs
from sandmeshd.cli.terminal.single_command import UNDERSCORES
from sandmeshd.runtime.telemetry.logs import configure_logging

if TYPE_CHECKING:
    from sandmeshd.facades.mcp import AdapterSettings, McpHttpSettings

INSTALL = 'pip install "sandmesh[mcp]"'

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
service_commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class AdapterOptions:
    """The sandbox that an MCP client uses, and the tools beside its own."""

    session: Annotated[
        str | None,
        typer.Option(
            help="Use and keep this session's sandbox; by default one is released with its client.",
            metavar="ID",
        ),
    ] = None
    user: Annotated[
        str | None, typer.Option(help="The session's user; by default you or the token's.", metavar="ID")
    ] = None
    mcp_config: Annotated[
        Path | None,
        typer.Option(help='Run these MCP servers inside the sandbox: {"mcpServers": {...}}.', metavar="JSON"),
    ] = None
    manage: Annotated[bool, typer.Option("--manage", help="Add tools that list, create, switch and end sandboxes.")] = (
        False
    )
    ask: Annotated[
        bool,
        typer.Option("--ask", help="Ask the client's user to allow a host that the sandbox was refused."),
    ] = False
    eager: Annotated[
        bool, typer.Option("--eager", help="Create the sandbox when a client connects, not at its first call.")
    ] = False
    reply_characters: Annotated[
        int | None,
        typer.Option(
            help="The most characters of text that a model is sent for one call.", metavar="COUNT", show_default="16000"
        ),
    ] = None
    log_level: Annotated[
        str, typer.Option(envvar="SANDMESH_LOG_LEVEL", help="The lowest level that is logged, to standard error.")
    ] = "WARNING"


@commands.callback(context_settings=UNDERSCORES, epilog="Example: sandmesh mcp --type filesystem --network packages")
@grouped
def mcp(
    context: typer.Context,
    connection: ConnectionOptions,
    sandbox: SandboxOptions,
    adapter: AdapterOptions,
    timeout: Timeout = 3000,
) -> None:
    """Serve an MCP client over standard input and output: a sandbox's tools, and its files as resources.

    The sandbox is created at the first call and released with the client: see docs/mcp-adapter.md.
    """
    if context.invoked_subcommand is not None:
        return
    settings = adapter_settings(connection, sandbox, adapter, timeout)
    # Its libraries take a second to import, which help and completion need not wait for.
    from sandmeshd.facades.mcp.stdio import serve_stdio  # noqa: PLC0415

    run_command(serve_stdio(settings))


def _check_options(options: list[str]) -> None:
    """Refuse options that the adapter does not have, before they are in a client's settings."""
    adapter = typer.Typer(rich_markup_mode=None)
    adapter.command(context_settings=UNDERSCORES)(mcp)
    typer.main.get_command(adapter).make_context("sandmesh mcp", [*options]).close()


add_commands(commands, _check_options)


@dataclass(frozen=True)
class HttpOptions:
    """The addresses that serve HTTP, and the clients that may use them."""

    listen: Annotated[
        list[str] | None,
        typer.Option(help="A host:port to listen on, beyond loopback only with TLS; repeatable.", metavar="HOST:PORT"),
    ] = None
    tls_cert: Annotated[Path | None, typer.Option(help="The certificate, with its chain.", metavar="PEM")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None
    require_token: Annotated[
        bool | None, typer.Option(help="Require a token of the mesh from clients.", show_default="with TLS")
    ] = None
    allow_insecure: Annotated[
        bool, typer.Option("--allow-insecure", help="Listen beyond loopback even without TLS.")
    ] = False
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A further host name in requests that is accepted; repeatable.", metavar="HOST"),
    ] = None
    allowed_origin: Annotated[
        list[str] | None,
        typer.Option(help="An origin of web pages that may send requests; repeatable.", metavar="https://HOST"),
    ] = None
    idle_timeout: Annotated[
        float, typer.Option(help="How long a client may be idle until its sandbox is released.", metavar="SECONDS")
    ] = 600.0
    max_sessions: Annotated[int, typer.Option(help="The most simultaneous clients.", metavar="COUNT")] = 1000
    largest_message: Annotated[
        int,
        typer.Option(
            help="The most bytes that clients take as one message, 0 for no bound; larger results become links.",
            metavar="BYTES",
        ),
    ] = 1 << 20

    def settings(self) -> McpHttpSettings:
        """Return the options as settings."""
        from sandmeshd.facades.mcp import McpHttpSettings  # noqa: PLC0415 - as above

        return McpHttpSettings(
            listen=tuple(self.listen or ("127.0.0.1:8580",)),
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            require_token=self.require_token,
            allow_insecure=self.allow_insecure,
            allowed_hosts=tuple(self.allowed_host or ()),
            allowed_origins=tuple(self.allowed_origin or ()),
            idle_timeout=self.idle_timeout,
            max_sessions=self.max_sessions,
            largest_message=self.largest_message,
        )


@service_commands.command(
    name="mcp", epilog="Example: sandmeshd mcp --base-url grpc://127.0.0.1:8570 --listen 127.0.0.1:8580"
)
@grouped
def serve(
    connection: ConnectionOptions,
    sandbox: SandboxOptions,
    adapter: AdapterOptions,
    http: HttpOptions,
    timeout: Timeout = 3000,
) -> None:
    """Serve MCP clients over streamable HTTP at /mcp, each with its own sandbox.

    Where a token is required, a client sends one of the mesh as `Authorization: Bearer ...` and acts as its user.
    """
    settings = adapter_settings(connection, sandbox, adapter, timeout)
    connection.require_address()
    with _validation_errors():
        http_settings = http.settings()
    run_service(_serve_http(settings, http_settings))


async def _serve_http(adapter: AdapterSettings, http: McpHttpSettings) -> None:
    from sandmeshd.facades.mcp.http import open_http_adapter  # noqa: PLC0415 - as above

    async with open_http_adapter(adapter, http) as urls:
        typer.echo("serving at " + " ".join(urls))
        await asyncio.Event().wait()


def adapter_settings(
    connection: ConnectionOptions, sandbox: SandboxOptions, adapter: AdapterOptions, timeout: float
) -> AdapterSettings:
    """Return the options as settings, and send logs to standard error.

    Raises:
        InvalidArgument: Two options exclude each other.
        RuntimeUnavailable: The package of the adapter is not installed, or of another version.
    """
    configure_logging(adapter.log_level)
    problem = explain_package("the MCP adapter", "mcp", "mcp", INSTALL)
    if problem is not None:
        raise RuntimeUnavailable(problem, {"fix": INSTALL})
    from sandmeshd.facades.mcp import AdapterSettings  # noqa: PLC0415 - as above

    bound = adapter.reply_characters
    with _validation_errors():
        return AdapterSettings(
            sandbox_type=sandbox.template,
            base_url=connection.address,
            bearer_token=SecretStr(connection.token) if connection.token else None,
            session=adapter.session,
            user=adapter.user or (None if connection.token else own_user()),
            env=parse_pairs(sandbox.env),
            limits=parse_limits(sandbox.limit),
            network=tuple(sandbox.network) if sandbox.network else None,
            mcp_servers=_read_mcp_servers(adapter.mcp_config),
            manage=adapter.manage,
            ask=adapter.ask,
            eager=adapter.eager,
            reply_characters=REPLY_CHARACTERS if bound is None else read_reply_characters(bound),
            timeout=timeout,
        )


def _read_mcp_servers(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        config: object = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"--mcp-config {path} cannot be read: {error}", {"file": str(path)}) from None
    servers: object = cast("dict[str, object]", config).get("mcpServers") if isinstance(config, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise InvalidArgument(f'--mcp-config {path} has no {{"mcpServers": {{name: ...}}}}', {"file": str(path)})
    return cast("dict[str, Any]", servers)


@contextmanager
def _validation_errors() -> Generator[None]:
    """Raise validation errors as InvalidArgument."""
    try:
        yield
    except ValidationError as error:
        problems = "; ".join(str(error["msg"]) for error in error.errors(include_url=False, include_input=False))
        raise InvalidArgument(problems) from None
