"""The tools that an MCP client is offered: those of the sandbox in use, which alone knows them all.

Before there is a sandbox, a type that the SDK has a class for is known by the tools of that class.
"""

from __future__ import annotations

from typing import Any

from mcp import types

from sandmesh import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync
from sandmesh.tools import TOOLS, Tool, description, input_schema
from sandmeshd.mcp_adapter.desk import Desk
from sandmeshd.mcp_adapter.managing import managing_tools

_CLASSES: dict[str, type[SandboxAsync]] = {"base": BaseSandboxAsync, "filesystem": FilesystemSandboxAsync}


async def offered(desk: Desk) -> list[types.Tool]:
    """Give the tools of the sandbox in use, or those that it will have; one of another type is made for it.

    Raises:
        SandmeshError: The sandbox cannot be asked.
    """
    own = managing_tools() if desk.settings.manage else []
    return [*own, *(one for one in await _of_sandbox(desk) if one.name not in {tool.name for tool in own})]


async def _of_sandbox(desk: Desk) -> list[types.Tool]:
    known = _CLASSES.get(desk.settings.sandbox_type)
    if desk.current is None and known is not None and desk.settings.session is None:
        return [_declared(one) for name, one in sorted(TOOLS.items()) if hasattr(known, name)]
    groups = await (await desk.box()).list_tools()
    return [_listed(entry["json_schema"]["function"]) for group in groups.values() for entry in group.values()]


def _declared(tool: type[Tool]) -> types.Tool:
    return types.Tool(name=tool.name, description=description(tool), input_schema=input_schema(tool))


def _listed(function: dict[str, Any]) -> types.Tool:
    schema = function["parameters"]
    if schema.get("type") != "object":
        schema = {"type": "object", **schema}
    return types.Tool(name=function["name"], description=function["description"], input_schema=schema)
