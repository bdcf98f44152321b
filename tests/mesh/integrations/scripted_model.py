"""A local server that speaks the chat completions API: it asks for one call, then answers with what that printed."""

from __future__ import annotations

import asyncio
import json
import os
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

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a request."""
        body = await request.json()
        self.requests.append(body)
        last = body["messages"][-1]
        if last["role"] == "tool":
            return web.json_response(_choice({"content": f"There are {_text(last['content']).strip()}."}, "stop"))
        function = {"name": "run_ipython_cell", "arguments": json.dumps({"code": CODE})}
        call = {"id": "call_1", "type": "function", "function": function}
        return web.json_response(_choice({"content": None, "tool_calls": [call]}, "tool_calls"))

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
async def scripted_model() -> AsyncGenerator[ScriptedModel]:
    """Serve a model until the block ends."""
    model = ScriptedModel()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    model.environment = {"OPENAI_BASE_URL": f"http://{host}:{port}/v1", "OPENAI_API_KEY": "none"}
    try:
        yield model
    finally:
        await runner.cleanup()


def _choice(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted"}
    return {**made, "choices": [choice], "usage": usage}


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
