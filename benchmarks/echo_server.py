"""The smallest MCP server over stdio, without any library: what is measured is the way to it."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "initialize":
        info: dict[str, Any] = {"serverInfo": {"name": "echo", "version": "1"}, "capabilities": {"tools": {}}}
        return {"protocolVersion": "2025-06-18", **info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()
