"""A local server in the place of a model: it asks for one call of a tool, then answers with what that printed.

It speaks OpenAI's chat completions, in one response or as a stream, and Gemini's generateContent.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CODE = "n = range(2, 10_000); print(sum(all(p % d for d in range(2, int(p**0.5) + 1)) for p in n))"


@dataclass
class ScriptedModel:
    """Answers with the last text of a tool; keeps the requests."""

    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    tool: str = "run_ipython_cell"
    arguments: dict[str, Any] = field(default_factory=lambda: {"code": CODE})

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a request for a chat completion."""
        body = await request.json()
        self.requests.append(body)
        last = body["messages"][-1]
        message: dict[str, Any] = {"content": f"There are {_number(_text(last['content']))}."}
        if last["role"] != "tool":
            function = {"name": self.tool, "arguments": json.dumps(self.arguments)}
            call = {"id": "call_1", "type": "function", "function": function}
            message = {"content": None, "tool_calls": [call]}
        reason = "stop" if last["role"] == "tool" else "tool_calls"
        return _streamed(message, reason) if body.get("stream") else web.json_response(_choice(message, reason))

    async def generate(self, request: web.Request) -> web.Response:
        """Answer a request for content, as Gemini does."""
        body = await request.json()
        self.requests.append(body)
        answer = body["contents"][-1]["parts"][-1].get("functionResponse")
        part: dict[str, Any] = {"functionCall": {"name": self.tool, "args": self.arguments}}
        if answer is not None:
            part = {"text": f"There are {_number(json.dumps(answer['response']))}."}
        content = {"role": "model", "parts": [part]}
        return web.json_response({"candidates": [{"content": content, "finishReason": "STOP"}]})

    async def run(self, program: str) -> str:
        """Run an example against this model and return what it prints."""
        agent = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLES / program),
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(agent.communicate(), 90)
        assert agent.returncode == 0, err.decode()
        return out.decode()


@asynccontextmanager
async def scripted_model(**values: Any) -> AsyncGenerator[ScriptedModel]:
    """Serve a model until the block ends; `tool` and `arguments` are the call that it asks for."""
    model = ScriptedModel(**values)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.complete)
    app.router.add_post("/v1beta/models/{model}:generateContent", model.generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    url = f"http://{host}:{port}"
    model.environment = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_API_KEY": "none",
    }
    try:
        yield model
    finally:
        await runner.cleanup()


def _choice(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted"}
    return {**made, "choices": [choice], "usage": usage}


def _streamed(message: dict[str, Any], reason: str) -> web.Response:
    """Return a completion as events, the message in one of them."""
    delta = {"role": "assistant", **message}
    if "tool_calls" in message:
        delta["tool_calls"] = [{"index": 0, **call} for call in message["tool_calls"]]
    made = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": reason}]
    events = [json.dumps({**made, "choices": [choice]}) for choice in choices]
    text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return web.Response(text=text, content_type="text/event-stream")


def _number(printed: str) -> str:
    """Return the last number of three digits or more, or all of the text if there is none.

    Frameworks add ids, exit codes, times and names of streams to what a command printed.
    """
    found = re.findall(r"(?<![\w.])\d{3,}(?![\w.])", printed)
    return found[-1] if found else printed.strip()


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
