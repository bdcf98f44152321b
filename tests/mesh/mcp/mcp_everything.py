"""An MCP server by the official library that has what the protocol's public conformance scenarios ask a server for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import MCPError, types
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.message import ServerMessageMetadata

Context = ServerRequestContext[Any]
Answer = Callable[[Context, dict[str, Any]], Awaitable[list[types.ContentBlock]]]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
WATCHED = "test://watched-resource"
RESOURCE_NOT_FOUND = -32002
OBJECT: dict[str, Any] = {"type": "object"}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2"]},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def text(content: str) -> types.TextContent:
    """Return a text."""
    return types.TextContent(text=content)


def embedded(uri: str, content: str) -> types.EmbeddedResource:
    """Return a resource that is in a message."""
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type="text/plain", text=content))


def image() -> types.ImageContent:
    """Return an image."""
    return types.ImageContent(data=PIXEL, mime_type="image/png")


async def log(context: Context, message: str) -> None:
    """Send a log message about the request under way."""
    params = types.LoggingMessageNotificationParams(level="info", logger="everything", data=message)
    await context.session.send_notification(types.LoggingMessageNotification(params=params), context.request_id)


async def logging(context: Context, _: dict[str, Any]) -> list[types.ContentBlock]:
    """Log three messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await log(context, message)
        await asyncio.sleep(0.05)
    return [text("logged")]


async def progress(context: Context, _: dict[str, Any]) -> list[types.ContentBlock]:
    """Report three steps."""
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return [text("done")]


async def sampling(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    """Request a completion of the client's model."""
    message = types.SamplingMessage(role="user", content=text(arguments["prompt"]))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    answer = await context.session.send_request(
        types.CreateMessageRequest(params=params),
        types.CreateMessageResult,
        metadata=ServerMessageMetadata(related_request_id=context.request_id),
    )
    return [text(f"LLM response: {getattr(answer.content, 'text', '')}")]


def elicitation(properties: dict[str, Any]) -> Answer:
    """Return a tool that elicits fields from the client's user."""

    async def elicit(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
        schema = {"type": "object", "properties": properties}
        answer = await context.session.elicit_form(arguments.get("message", "Please"), schema, context.request_id)
        return [text(f"action={answer.action}, content={json.dumps(answer.content)}")]

    return elicit


def fixed(*content: types.ContentBlock) -> Answer:
    """Return a tool that always returns the same."""

    async def answer(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
        return list(content)

    return answer


async def failing(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    """Fail."""
    raise ValueError("This tool intentionally returns an error for testing")


async def touching(context: Context, arguments: dict[str, Any]) -> list[types.ContentBlock]:
    """Report a change of the resource that can be watched."""
    await context.session.send_resource_updated(WATCHED)
    return [text("touched")]


async def reconnection(context: Context, _: dict[str, Any]) -> list[types.ContentBlock]:
    """Close the stream of the request, where there is one, and go on."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    return [text("reconnected")]


TOOLS: dict[str, Answer] = {
    "test_simple_text": fixed(text("This is a simple text response for testing.")),
    "test_image_content": fixed(image()),
    "test_audio_content": fixed(types.AudioContent(data=SOUND, mime_type="audio/wav")),
    "test_embedded_resource": fixed(embedded("test://embedded-resource", "This is an embedded resource content.")),
    "test_multiple_content_types": fixed(
        text("Multiple content types test:"), image(), embedded("test://mixed-content-resource", "{}")
    ),
    "test_tool_with_logging": logging,
    "test_tool_with_progress": progress,
    "test_sampling": sampling,
    "test_elicitation": elicitation({"username": {"type": "string"}, "email": {"type": "string"}}),
    "test_elicitation_sep1034_defaults": elicitation(DEFAULTS),
    "test_elicitation_sep1330_enums": elicitation(ENUMS),
    "test_error_handling": failing,
    "test_reconnection": reconnection,
    "json_schema_2020_12_tool": fixed(text("ok")),
    "touch": touching,
}
PROMPTS: dict[str, tuple[list[str], Callable[[dict[str, str]], list[types.ContentBlock]]]] = {
    "test_simple_prompt": ([], lambda _: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (["arg1", "arg2"], lambda said: [text(f"{said['arg1']!r}, {said['arg2']!r}")]),
    "test_prompt_with_embedded_resource": (["resourceUri"], lambda said: [embedded(said["resourceUri"], "content")]),
    "test_prompt_with_image": ([], lambda _: [image(), text("Please analyze the image above.")]),
}


async def list_tools(_: Context, __: Any) -> types.ListToolsResult:
    """List the tools."""
    schemas = {"json_schema_2020_12_tool": SCHEMA_2020_12}
    tools = [types.Tool(name=name, description=name, input_schema=schemas.get(name, OBJECT)) for name in TOOLS]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Context, called: types.CallToolRequestParams) -> types.CallToolResult:
    """Call a tool; what it raises is its result."""
    try:
        return types.CallToolResult(content=await TOOLS[called.name](context, called.arguments or {}))
    except (ValueError, MCPError) as error:
        return types.CallToolResult(content=[text(str(error))], is_error=True)


async def list_resources(_: Context, __: Any) -> types.ListResourcesResult:
    """List the resources."""
    uris = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=f"test://{name}", name=name, description=name, mime_type=kind)
            for name, kind in uris.items()
        ]
    )


async def list_templates(_: Context, __: Any) -> types.ListResourceTemplatesResult:
    """List the one template."""
    template = types.ResourceTemplate(name="template", uri_template="test://template/{id}/data", description="data")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """Read a resource."""
    uri = str(params.uri)
    if uri == "test://static-binary":
        return types.ReadResourceResult(
            contents=[types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)]
        )
    known = {"test://static-text": "This is the content of the static text resource.", WATCHED: "watched"}
    content = "x" * 3_000_000 if uri == "test://large" else known.get(uri)
    if uri.startswith("test://template/"):
        content = json.dumps({"id": uri.split("/")[3], "templateTest": True})
    if content is None:
        raise MCPError(RESOURCE_NOT_FOUND, f"there is no {uri}")
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=content)]
    )


async def accept(_: Context, __: Any) -> types.EmptyResult:
    """Accept a subscription, or a level of logging."""
    return types.EmptyResult()


async def list_prompts(_: Context, __: Any) -> types.ListPromptsResult:
    """List the prompts."""
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=name,
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, (arguments, _) in PROMPTS.items()
        ]
    )


async def get_prompt(_: Context, wanted: types.GetPromptRequestParams) -> types.GetPromptResult:
    """Return a prompt's messages."""
    content = PROMPTS[wanted.name][1](wanted.arguments or {})
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in content])


async def complete(_: Context, wanted: types.CompleteRequestParams) -> types.CompleteResult:
    """Complete an argument."""
    values = [f"{wanted.argument.value}{ending}" for ending in ("ed", "ing")]
    return types.CompleteResult(completion=types.Completion(values=values, total=2, has_more=False))


async def main() -> None:
    """Serve over standard input and output."""
    server: Server[Any] = Server(
        "everything",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options(NotificationOptions()))


if __name__ == "__main__":
    asyncio.run(main())
