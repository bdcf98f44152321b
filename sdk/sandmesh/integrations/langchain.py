"""The tools of a sandbox for LangChain and LangGraph, as `StructuredTool`s.

A model gets the text and the images of a result. A result that is an error is a `ToolMessage` with the status "error".
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, overload

from sandmesh.integrations.framework_replies import FORM, ModelReply, ToolDefinition, definitions
from sandmesh.integrations.versions import framework
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.sync import Sandbox
from sandmesh.sandbox.tools.toolkit import Toolkit, ToolkitAsync

with framework("langchain-core"):
    from langchain_core.tools import BaseTool, StructuredTool, ToolException


@overload
def as_tools(box: Sandbox) -> list[BaseTool]: ...
@overload
def as_tools(box: SandboxAsync) -> Awaitable[list[BaseTool]]: ...


def as_tools(box: Sandbox | SandboxAsync) -> list[BaseTool] | Awaitable[list[BaseTool]]:
    """Return the tools of a sandbox; await them for an async sandbox."""
    if isinstance(box, SandboxAsync):
        return _as_tools_async(box)
    kit = box.as_tools(FORM)
    return [_tool(definition, kit) for definition in definitions(kit)]


async def _as_tools_async(box: SandboxAsync) -> list[BaseTool]:
    kit = await box.as_tools(FORM)
    return [_tool_async(definition, kit) for definition in definitions(kit)]


def _tool(definition: ToolDefinition, kit: Toolkit) -> BaseTool:
    def run(**arguments: Any) -> Any:
        return content(definition.call(kit, arguments))

    return _made(definition, func=run)


def _tool_async(definition: ToolDefinition, kit: ToolkitAsync) -> BaseTool:
    async def run(**arguments: Any) -> Any:
        return content(await definition.call_async(kit, arguments))

    return _made(definition, coroutine=run)


def _made(definition: ToolDefinition, **functions: Any) -> BaseTool:
    return StructuredTool(
        name=definition.name,
        description=definition.description,
        args_schema=definition.parameters,
        handle_tool_error=True,
        **functions,
    )


def content(reply: ModelReply) -> str | list[dict[str, Any]]:
    """Return a reply as the content of a message: text, or blocks where there are images.

    Raises:
        ToolException: The tool failed; LangChain sends what it holds to the model.
    """
    images = [{"type": "image", "base64": image.base64, "mime_type": image.mime_type} for image in reply.images]
    texts = [{"type": "text", "text": reply.text}] if reply.text else []
    made = [*texts, *images] if images else reply.text
    if reply.is_error:
        raise ToolException(made)
    return made
