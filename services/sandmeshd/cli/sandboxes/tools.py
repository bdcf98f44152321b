"""Commands on a sandbox's tools: those that it has, one call of one, and the MCP servers that bring more."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from sandmesh import McpServer, SandboxAsync, ToolResult
from sandmesh.errors import MeshUnavailable
from sandmeshd.cli.terminal.exit_codes import FAILED
from sandmeshd.cli.terminal.lifetime import run_to_end
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, SandboxId, Shape, Timeout
from sandmeshd.cli.terminal.output import print_json, print_table

commands = typer.Typer(rich_markup_mode=None)
server_commands = typer.Typer(
    help="MCP servers inside a sandbox: their tools are the sandbox's.", no_args_is_help=True, rich_markup_mode=None
)


@commands.command(epilog="Examples: sandmesh tools sb_... | sandmesh tools sb_... --group time -o json")
@grouped
def tools(
    sandbox_id: SandboxId,
    where: Where,
    group: Annotated[str | None, typer.Option(help="Only those of this group or MCP server.", metavar="NAME")] = None,
    output: Answer = Shape.TEXT,
) -> None:
    """List the tools that a sandbox has now."""
    listed = run_to_end(_listed(where, sandbox_id, group))
    if output is Shape.JSON:
        print_json(listed)
        return
    rows = [(name, of, _first_line(tool)) for of, named in listed.items() for name, tool in named.items()]
    print_table(("TOOL", "GROUP", "WHAT IT DOES"), rows)


@commands.command(epilog="""Example: sandmesh call sb_... get_current_time '{"timezone": "Europe/Zurich"}'""")
@grouped
def call(
    sandbox_id: SandboxId,
    tool: Annotated[str, typer.Argument(help="Its name, or SERVER.TOOL.", metavar="TOOL")],
    where: Where,
    arguments: Annotated[str, typer.Argument(help="Its arguments as a JSON object; - reads them.", metavar="JSON")] = (
        "{}"
    ),
    timeout: Timeout = 3000,
    output: Answer = Shape.TEXT,
) -> None:
    """Run a tool of a sandbox and print its text, or with -o json all that it gave. A failed tool exits with 1."""
    given = _object(sys.stdin.read() if arguments == "-" else arguments)
    result = run_to_end(_called(where, sandbox_id, tool, given, timeout))
    if output is Shape.JSON:
        print_json(result)
    else:
        typer.echo(result.text)
    if result.is_error:
        raise typer.Exit(FAILED)


@server_commands.command(epilog="Example: sandmesh mcp-servers add sb_... servers.json")
@grouped
def add(
    sandbox_id: SandboxId,
    config: Annotated[str, typer.Argument(help='A file with {"mcpServers": {...}}; - reads it.', metavar="FILE")],
    where: Where,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace servers of the same names.")] = False,
    output: Answer = Shape.TEXT,
) -> None:
    """Start MCP servers inside a sandbox. It exits with 1 where one does not start; the others are there."""
    try:
        text = sys.stdin.read() if config == "-" else Path(config).read_text("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{config}: {error.strerror}") from None
    servers = run_to_end(_added(where, sandbox_id, _object(text), overwrite))
    _show(servers, output)
    if any(server.state != "READY" for server in servers):
        raise typer.Exit(FAILED)


@server_commands.command(epilog="Example: sandmesh mcp-servers ls sb_... -o json | jq '.[].log'")
@grouped
def ls(sandbox_id: SandboxId, where: Where, output: Answer = Shape.TEXT) -> None:
    """List the MCP servers of a sandbox: their states and tools, and with -o json the last lines of their errors."""
    _show(run_to_end(_servers(where, sandbox_id)), output)


@server_commands.command(epilog="Example: sandmesh mcp-servers rm sb_... time")
@grouped
def rm(
    sandbox_id: SandboxId,
    names: Annotated[list[str], typer.Argument(help="Names of servers.", metavar="SERVER...")],
    where: Where,
    output: Answer = Shape.TEXT,
) -> None:
    """End MCP servers of a sandbox; their tools are gone."""
    run_to_end(_removed(where, sandbox_id, names))
    if output is Shape.JSON:
        print_json({"names": names})


async def _listed(where: Where, sandbox_id: str, group: str | None) -> dict[str, Any]:
    async with _opened(where, sandbox_id) as box:
        return await box.list_tools(group)


async def _called(where: Where, sandbox_id: str, tool: str, given: dict[str, Any], timeout: float) -> ToolResult:
    async with _opened(where, sandbox_id, timeout) as box:
        return await box.call_tool(tool, given)


async def _added(where: Where, sandbox_id: str, config: dict[str, Any], overwrite: bool) -> list[McpServer]:
    async with _opened(where, sandbox_id) as box:
        return await box.add_mcp_servers(config, overwrite)


async def _servers(where: Where, sandbox_id: str) -> list[McpServer]:
    async with _opened(where, sandbox_id) as box:
        return await box.list_mcp_servers()


async def _removed(where: Where, sandbox_id: str, names: list[str]) -> None:
    async with _opened(where, sandbox_id) as box:
        for name in names:
            await box.remove_mcp_server(name)


@asynccontextmanager
async def _opened(where: Where, sandbox_id: str, timeout: float = 600) -> AsyncGenerator[SandboxAsync]:
    address = find_address(where.base_url)
    if address is None:
        fix = "start one with `sandmesh up -d`, or name one by --base-url or SANDMESH_ADDRESS"
        raise MeshUnavailable(f"no mesh of this user runs here: {fix}", {"fix": fix})
    async with SandboxAsync(sandbox_id, timeout=timeout, base_url=address, bearer_token=where.token) as box:
        yield box


def _object(text: str) -> dict[str, Any]:
    try:
        read: object = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is no JSON: {error}") from None
    if not isinstance(read, dict):
        raise typer.BadParameter("this is JSON but no object")
    return cast("dict[str, Any]", read)


def _first_line(tool: dict[str, Any]) -> str:
    described = str(tool["json_schema"]["function"]["description"]).strip()
    return described.partition("\n")[0][:100]


def _show(servers: list[McpServer], output: Shape) -> None:
    if output is Shape.JSON:
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
