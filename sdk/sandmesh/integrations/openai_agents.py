"""The tools of a sandbox for the OpenAI Agents SDK: `Agent(name=..., tools=as_tools(box))`.

A model gets the text and the images of a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, overload

from sandmesh.integrations.framework_replies import FORM, ModelReply, ToolDefinition, definitions
from sandmesh.integrations.versions import framework
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.sync import Sandbox
from sandmesh.sandbox.tools.toolkit import Toolkit, ToolkitAsync

with framework("openai-agents"):
    from agents import FunctionTool, Tool, ToolOutputImage, ToolOutputText


@overload
def as_tools(box: Sandbox) -> list[Tool]: ...
@overload
def as_tools(box: SandboxAsync) -> Awaitable[list[Tool]]: ...


def as_tools(box: Sandbox | SandboxAsync) -> list[Tool] | Awaitable[list[Tool]]:
    """Return the tools of a sandbox; await them for an async sandbox."""
    if isinstance(box, SandboxAsync):
        return _as_tools_async(box)
    kit = box.as_tools(FORM)
    return [_tool(definition, kit) for definition in definitions(kit)]


async def _as_tools_async(box: SandboxAsync) -> list[Tool]:
    kit = await box.as_tools(FORM)
    return [_tool(definition, kit) for definition in definitions(kit)]


def _tool(definition: ToolDefinition, kit: Toolkit | ToolkitAsync) -> Tool:
    async def run(_context: object, arguments: str) -> Any:
        if isinstance(kit, ToolkitAsync):
            return content(await definition.call_async(kit, arguments))
        return content(await asyncio.to_thread(definition.call, kit, arguments))

    # A strict schema cannot have optional parameters.
    return FunctionTool(definition.name, definition.description, definition.parameters, run, strict_json_schema=False)


def content(reply: ModelReply) -> str | list[ToolOutputText | ToolOutputImage]:
    """Return a reply as a tool's output: text, or a list where there are images."""
    images = [ToolOutputImage(image_url=image.url) for image in reply.images]
    return (
        [*([ToolOutputText(text=reply.full_text)] if reply.full_text else []), *images] if images else reply.full_text
    )
