"""The tools of a sandbox for pydantic-ai: `Agent(model, tools=as_tools(box))`.

A model gets the text and the images of a result.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, overload

from sandmesh.integrations.framework_replies import FORM, ModelReply, ToolDefinition, definitions
from sandmesh.integrations.versions import framework
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.sync import Sandbox
from sandmesh.sandbox.tools.toolkit import Toolkit, ToolkitAsync

with framework("pydantic-ai-slim"):
    from pydantic_ai import BinaryContent, Tool


@overload
def as_tools(box: Sandbox) -> list[Tool[Any]]: ...
@overload
def as_tools(box: SandboxAsync) -> Awaitable[list[Tool[Any]]]: ...


def as_tools(box: Sandbox | SandboxAsync) -> list[Tool[Any]] | Awaitable[list[Tool[Any]]]:
    """Return the tools of a sandbox; await them for an async sandbox."""
    if isinstance(box, SandboxAsync):
        return _as_tools_async(box)
    kit = box.as_tools(FORM)
    return [_tool(definition, kit) for definition in definitions(kit)]


async def _as_tools_async(box: SandboxAsync) -> list[Tool[Any]]:
    kit = await box.as_tools(FORM)
    return [_tool_async(definition, kit) for definition in definitions(kit)]


def _tool(definition: ToolDefinition, kit: Toolkit) -> Tool[Any]:
    def run(**arguments: Any) -> Any:
        return content(definition.call(kit, arguments))

    return Tool.from_schema(run, definition.name, definition.description, definition.parameters)


def _tool_async(definition: ToolDefinition, kit: ToolkitAsync) -> Tool[Any]:
    async def run(**arguments: Any) -> Any:
        return content(await definition.call_async(kit, arguments))

    return Tool.from_schema(run, definition.name, definition.description, definition.parameters)


def content(reply: ModelReply) -> str | list[str | BinaryContent]:
    """Return a reply as a tool's return value: text, or a list where there are images."""
    images = [BinaryContent(image.data, media_type=image.mime_type) for image in reply.images if image.data]
    return [*([reply.full_text] if reply.full_text else []), *images] if images else reply.full_text
