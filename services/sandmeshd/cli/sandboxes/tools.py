"""Commands on a sandbox's tools: list and call them, and manage the MCP servers that add more."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from sandmesh import McpServer, ToolResult
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import FAILED
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId, Timeout
from sandmeshd.cli.terminal.output import print_json, print_table

commands = typer.Typer(rich_markup_mode=None)
server_commands = typer.Typer(
    help="Manage MCP servers inside a sandbox, whose tools the sandbox has.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LISTING_SECONDS = 600.0


@commands.command(epilog="Examples: sandmesh tools sb_... | sandmesh tools sb_... --group time -o json")
@grouped
def tools(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    group: Annotated[str | None, typer.Option(help="Only those of this group or MCP server.", metavar="NAME")] = None,
    output: Output = Format.TEXT,
) -> None:
    """List the tools that a sandbox has now."""
    groups = run_command(_list_tools(connection, sandbox_id, group))
    if output is Format.JSON:
        print_json(groups)
        return
    rows = [(name, group_name, _summary(tool)) for group_name, named in groups.items() for name, tool in named.items()]
    print_table(("TOOL", "GROUP", "WHAT IT DOES"), rows)


@commands.command(epilog="""Example: sandmesh call sb_... get_current_time '{"timezone": "Europe/Zurich"}'""")
@grouped
def call(
    sandbox_id: SandboxId,
    tool: Annotated[str, typer.Argument(help="Its name, or SERVER.TOOL.", metavar="TOOL")],
    connection: ConnectionOptions,
    arguments: Annotated[
        str, typer.Argument(help="Its arguments as a JSON object; - reads standard input.", metavar="JSON")
    ] = "{}",
    timeout: Timeout = 3000,
    output: Output = Format.TEXT,
) -> None:
    """Call a tool of a sandbox and print its text, or with -o json its whole result. A failed tool exits with 1."""
    parsed = _parse_object(sys.stdin.read() if arguments == "-" else arguments)
    result = run_command(_call(connection, sandbox_id, tool, parsed, timeout))
    if output is Format.JSON:
        print_json(result)
    else:
        typer.echo(result.text)
    if result.is_error:
        raise typer.Exit(FAILED)


@server_commands.command(epilog="Example: sandmesh mcp-servers add sb_... servers.json")
@grouped
def add(
    sandbox_id: SandboxId,
    config: Annotated[
        str, typer.Argument(help='A file with {"mcpServers": {...}}; - reads standard input.', metavar="FILE")
    ],
    connection: ConnectionOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace servers of the same names.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Start MCP servers inside a sandbox. It exits with 1 where one does not start; the others run."""
    try:
        text = sys.stdin.read() if config == "-" else Path(config).read_text("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{config}: {error.strerror}") from None
    servers = run_command(_add_servers(connection, sandbox_id, _parse_object(text), overwrite))
    _print_servers(servers, output)
    if any(server.state != "READY" for server in servers):
        raise typer.Exit(FAILED)


@server_commands.command(epilog="Example: sandmesh mcp-servers ls sb_... -o json | jq '.[].log'")
@grouped
def ls(sandbox_id: SandboxId, connection: ConnectionOptions, output: Output = Format.TEXT) -> None:
    """List the MCP servers of a sandbox with their states and tools; -o json adds the ends of their error output."""
    _print_servers(run_command(_list_servers(connection, sandbox_id)), output)


@server_commands.command(epilog="Example: sandmesh mcp-servers rm sb_... time")
@grouped
def rm(
    sandbox_id: SandboxId,
    names: Annotated[list[str], typer.Argument(help="Names of servers.", metavar="SERVER...")],
    connection: ConnectionOptions,
    output: Output = Format.TEXT,
) -> None:
    """Stop MCP servers of a sandbox and remove their tools."""
    run_command(_remove_servers(connection, sandbox_id, names))
    if output is Format.JSON:
        print_json({"names": names})


async def _list_tools(connection: ConnectionOptions, sandbox_id: str, group: str | None) -> dict[str, Any]:
    async with connection.sandbox(sandbox_id, LISTING_SECONDS) as box:
        return await box.list_tools(group)


async def _call(
    connection: ConnectionOptions, sandbox_id: str, tool: str, arguments: dict[str, Any], timeout: float
) -> ToolResult:
    async with connection.sandbox(sandbox_id, timeout) as box:
        return await box.call_tool(tool, arguments)


async def _add_servers(
    connection: ConnectionOptions, sandbox_id: str, config: dict[str, Any], overwrite: bool
) -> list[McpServer]:
    async with connection.sandbox(sandbox_id, LISTING_SECONDS) as box:
        return await box.add_mcp_servers(config, overwrite)


async def _list_servers(connection: ConnectionOptions, sandbox_id: str) -> list[McpServer]:
    async with connection.sandbox(sandbox_id, LISTING_SECONDS) as box:
        return await box.list_mcp_servers()


async def _remove_servers(connection: ConnectionOptions, sandbox_id: str, names: list[str]) -> None:
    async with connection.sandbox(sandbox_id, LISTING_SECONDS) as box:
        for name in names:
            await box.remove_mcp_server(name)


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("this is JSON, but not an object")
    return cast("dict[str, Any]", value)


def _summary(tool: dict[str, Any]) -> str:
    description = str(tool["json_schema"]["function"]["description"]).strip()
    return description.partition("\n")[0][:100]


def _print_servers(servers: list[McpServer], output: Format) -> None:
    if output is Format.JSON:
        print_json([asdict(server) for server in servers])
        return
    rows = [
        (
            server.name,
            server.state,
            server.transport,
            str(len(server.tools)),
            server.error or "; ".join(server.problems),
        )
        for server in servers
    ]
    print_table(("SERVER", "STATE", "TRANSPORT", "TOOLS", "WHAT IS WRONG"), rows)
