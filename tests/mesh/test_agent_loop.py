"""The README's agent: a real client of models against a local server that speaks the chat completions API."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "agent_loop.py"
CODE = "n = range(2, 10_000); print(sum(all(p % d for d in range(2, int(p**0.5) + 1)) for p in n))"


def _choice(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}


class _ScriptedModel:
    """Asks for one cell, then answers with what that printed; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    async def complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        last = body["messages"][-1]
        if last["role"] == "tool":
            return web.json_response(_choice({"content": f"There are {last['content'].strip()}."}, "stop"))
        function = {"name": "run_ipython_cell", "arguments": json.dumps({"code": CODE})}
        call = {"id": "call_1", "type": "function", "function": function}
        return web.json_response(_choice({"content": None, "tool_calls": [call]}, "tool_calls"))


async def test_the_agent_of_the_readme_answers_with_what_its_sandbox_computed() -> None:
    model = _ScriptedModel()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        environment = {**os.environ, "OPENAI_BASE_URL": f"http://{host}:{port}/v1", "OPENAI_API_KEY": "none"}
        agent = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await asyncio.wait_for(agent.communicate(), 90)
    finally:
        await runner.cleanup()
    assert agent.returncode == 0, err.decode()
    assert out.decode() == "There are 1229.\n"
    assert {tool["function"]["name"] for tool in model.requests[0]["tools"]} >= {
        "run_ipython_cell",
        "run_shell_command",
    }
