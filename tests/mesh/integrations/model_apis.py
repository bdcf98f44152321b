"""The APIs of Anthropic, OpenAI and Gemini in the place of their own hosts, over TLS: a script that fixes a bug.

A proxy, as a node may need one, leads the hosts' names here. The script asks for one command, then ends.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

from tests.isolation.secret_world import write_authority

ANTHROPIC, OPENAI, GEMINI = "api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"
DONE = "It adds now."
# aider's model has no tools: it writes what is to be replaced.
EDITS = "SEARCH/REPLACE"
EDIT = """sums.py
```python
<<<<<<< SEARCH
    return a - b
=======
    return a + b
>>>>>>> REPLACE
```
"""


@dataclass
class ModelApis:
    """Answers with the command until it has its result; keeps the headers of the requests for models by host."""

    command: str
    settings: dict[str, str] = field(default_factory=dict[str, str])
    """What a mesh needs to reach it."""
    keys: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """The keys that requests had, by host."""
    results: list[str] = field(default_factory=list[str])
    """The last messages of requests that had the command's result."""

    def _note(self, request: web.Request, *headers: str) -> None:
        found = {request.headers[name].removeprefix("Bearer ") for name in headers if name in request.headers}
        self.keys.setdefault(request.host.partition(":")[0], set()).update(found)

    async def messages(self, request: web.Request) -> web.Response:
        """Answer as Anthropic's Messages API does, in a stream."""
        body = await request.json()
        self._note(request, "x-api-key", "authorization")
        names = [tool["name"] for tool in body.get("tools", ())]
        shell = next((name for name in names if name.lower() == "bash"), None)
        usage = {"input_tokens": 1, "output_tokens": 1}
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": DONE}
        if shell is not None and not self._has_result(body["messages"], "tool_result"):
            block = {"type": "tool_use", "id": "toolu_1", "name": shell, "input": {}}
            arguments = {"command": self.command, "description": "Fix it"}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
        if EDITS in json.dumps(body.get("system", "")) and "I ran" not in json.dumps(body["messages"]):
            delta["text"] = f"{EDIT}{DONE}"
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
        }
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            content = [{"type": "text", "text": DONE}]
            return web.json_response({**message, "content": content, "stop_reason": "end_turn"})
        stop = {"stop_reason": reason, "stop_sequence": None}
        return _events(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        )

    async def responses(self, request: web.Request) -> web.Response:
        """Answer as OpenAI's Responses API does, in a stream."""
        body = await request.json()
        self._note(request, "authorization")
        content: list[dict[str, Any]] = [{"type": "output_text", "text": DONE, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "content": content}
        names = {tool.get("name") for tool in body.get("tools", ())}
        if "exec_command" in names and not self._has_result(body["input"], "function_call_output"):
            item = {"type": "function_call", "id": "f1", "call_id": "call_1", "name": "exec_command"}
            item["arguments"] = json.dumps({"cmd": self.command})
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response = {"id": "resp_1", "object": "response", "created_at": 1, "model": body["model"], "usage": usage}
        return _events(
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
            {"type": "response.completed", "response": {**response, "status": "completed", "output": [item]}},
        )

    async def generate(self, request: web.Request) -> web.Response:
        """Answer as Gemini's generateContent does, in one response or a stream."""
        body = await request.json()
        self._note(request, "x-goog-api-key")
        declared = [one["name"] for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
        part: dict[str, Any] = {"text": DONE}
        if "run_shell_command" in declared and not self._has_result(body["contents"], "functionResponse"):
            part = {"functionCall": {"name": "run_shell_command", "args": {"command": self.command}}}
        elif not declared:
            # It asks first which model the task needs.
            part = {"text": json.dumps({"reasoning": "It is short.", "model_choice": "flash", "complexity_score": 1})}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": usage}
        if "stream" in request.path:
            return web.Response(text=f"data: {json.dumps(answer)}\n\n", content_type="text/event-stream")
        return web.json_response(answer)

    def _has_result(self, messages: list[Any], kind: str) -> bool:
        text = json.dumps(messages)
        if found := f'"{kind}"' in text:
            self.results.append(json.dumps(messages[-1]))
        return found


def _events(*events: Mapping[str, Any]) -> web.Response:
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return web.Response(text=text, content_type="text/event-stream")


async def _nothing(_request: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "not here"}}, status=404)


@asynccontextmanager
async def model_apis(command: str, folder: Path, more: Iterable[web.RouteDef] = ()) -> AsyncGenerator[ModelApis]:
    """Serve the APIs, and more of them, until the block ends."""
    apis = ModelApis(command)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/messages", apis.messages)
    app.router.add_post("/v1/responses", apis.responses)
    app.router.add_post("/v1beta/models/{model}", apis.generate)
    app.router.add_routes(more)
    app.router.add_route("*", "/{path:.*}", _nothing)
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert(ANTHROPIC, OPENAI, GEMINI)
    issued.configure_cert(context)
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        proxy = await stack.enter_async_context(_proxy(runner.addresses[0][1], {ANTHROPIC, OPENAI, GEMINI}))
        apis.settings = {
            "SANDMESH_EGRESS_CA_FILE": str(write_authority(authority, folder)),
            "SANDMESH_EGRESS_PROXY": f"http://127.0.0.1:{proxy}",
        }
        yield apis


@asynccontextmanager
async def _proxy(port: int, hosts: Iterable[str]) -> AsyncGenerator[int]:
    """Run a proxy that leads these hosts to a port of this machine, and refuses all others; yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.split()[1].rpartition(":")[0] not in hosts:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            there, out = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_pump(reader, out), _pump(there, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
