"""The tools that an MCP client is offered_tools: those of the sandbox in use, which alone knows them all.

Before there is a sandbox, a type that the SDK has a class for is known by the tools of that class.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from mcp import types
from pydantic import ValidationError

from sandmesh import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync
from sandmesh._tools import TOOLS, Tool, description, input_schema
from sandmeshd.facades.mcp.sandbox_tools import management_tools
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes

_CLASSES: dict[str, type[SandboxAsync]] = {"base": BaseSandboxAsync, "filesystem": FilesystemSandboxAsync}


async def offered_tools(sandboxes: SessionSandboxes) -> list[types.Tool]:
    """Return the tools of the sandbox in use, or those that it will have; one of another type is made for it.

    Raises:
        SandmeshError: The sandbox cannot be asked.
    """
    own = management_tools() if sandboxes.settings.manage else []
    return [*own, *(one for one in await _of_sandbox(sandboxes) if one.name not in {tool.name for tool in own})]


async def _of_sandbox(sandboxes: SessionSandboxes) -> list[types.Tool]:
    known = _CLASSES.get(sandboxes.settings.sandbox_type)
    only_own = sandboxes.settings.session is None and not sandboxes.settings.mcp_servers
    if sandboxes.current is None and known is not None and only_own:
        return [_declared(one) for name, one in sorted(TOOLS.items()) if hasattr(known, name)]
    groups: dict[str, dict[str, Any]] = await (await sandboxes.box()).list_tools()
    times = Counter(name for group in groups.values() for name in group)
    return [
        _listed(entry, name if times[name] == 1 or _is_own(group, name) else f"{group}.{name}")
        for group, entries in groups.items()
        for name, entry in entries.items()
    ]


def _is_own(group: str, name: str) -> bool:
    """Return whether a tool is the sandbox's own: no MCP server takes its name from it."""
    return name in TOOLS and TOOLS[name].group == group


def _declared(tool: type[Tool]) -> types.Tool:
    return types.Tool(name=tool.name, description=description(tool), input_schema=input_schema(tool))


def _listed(entry: dict[str, Any], name: str) -> types.Tool:
    function: dict[str, Any] = entry["json_schema"]["function"]
    tool = types.Tool(
        name=name,
        title=entry.get("title"),
        description=function["description"],
        input_schema={**function["parameters"], "type": "object"},
        output_schema=entry.get("output_schema"),
    )
    try:
        hints = types.ToolAnnotations.model_validate(entry.get("annotations") or {})
    except ValidationError:
        return tool  # a server's own hints, which may be anything
    return tool.model_copy(update={"annotations": hints}) if entry.get("annotations") else tool
