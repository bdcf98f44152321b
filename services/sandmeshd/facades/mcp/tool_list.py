"""The tools that an MCP client is offered: those of the sandbox in use: only it knows them all.

Before there is a sandbox, the tools of a built-in type are known from the table of types.
"""

from __future__ import annotations

from typing import Any

from mcp import types
from pydantic import ValidationError

from sandmesh._tools import PLUMBING, TOOLS, Tool, description, input_schema
from sandmesh._tools.model_names import qualified_names
from sandmesh.errors import ToolNotFound
from sandmesh.shared.sandbox_types import SANDBOX_TYPES
from sandmeshd.facades.mcp.sandbox_tools import management_tools
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes


async def offered_tools(sandboxes: SessionSandboxes) -> list[types.Tool]:
    """Return the tools of the sandbox in use, or those that it will have; one of another type is made for it.

    Raises:
        SandmeshError: The sandbox cannot be asked.
    """
    own = management_tools() if sandboxes.settings.manage else []
    return [
        *own,
        *(offered for offered in await _of_sandbox(sandboxes) if offered.name not in {tool.name for tool in own}),
    ]


async def check_offered(sandboxes: SessionSandboxes, name: str) -> None:
    """Refuse what is not offered, and the tools of the SDK's handles, some of which end only when they are cancelled.

    Raises:
        ToolNotFound: It is one of them.
    """
    hidden = bool(sandboxes.settings.groups) and name not in {one.name for one in await _of_sandbox(sandboxes)}
    if hidden or (name in TOOLS and TOOLS[name].group in PLUMBING):
        raise ToolNotFound(f"{name!r} is not offered to MCP clients: list the tools", {"tool": name})


async def has_output_schema(sandboxes: SessionSandboxes, name: str) -> bool:
    """Return whether a tool declares what its structured results are like, as a server inside may."""
    return any(tool.output_schema is not None for tool in await _of_sandbox(sandboxes) if tool.name == name)


async def _of_sandbox(sandboxes: SessionSandboxes) -> list[types.Tool]:
    offered_groups = SANDBOX_TYPES.get(sandboxes.settings.sandbox_type)
    settings = sandboxes.settings
    only_own = settings.session is None and settings.sandbox_id is None and not settings.mcp_servers
    if sandboxes.current is None and offered_groups and only_own:
        return [_declared(one) for _, one in sorted(TOOLS.items()) if one.group in offered_groups]
    listed: dict[str, dict[str, Any]] = await (await sandboxes.box()).list_tools()
    wanted = sandboxes.settings.groups
    groups = {group: entries for group, entries in listed.items() if not wanted or group in wanted}
    names = qualified_names((group, name) for group, entries in groups.items() for name in entries)
    return [_listed(groups[group][name], called) for (group, name), called in names.items()]


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
