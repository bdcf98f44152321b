"""A small MCP server over stdio, for tests: it needs no library, and its first argument says how it misbehaves."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

OBJECT = {"type": "object"}
ECHO = {
    "name": "echo",
    "title": "Echo",
    "description": "Say it again.",
    "inputSchema": {**OBJECT, "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "outputSchema": {**OBJECT, "properties": {"said": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
TOOLS: list[Any] = [ECHO] + [
    {"name": name, "inputSchema": OBJECT} for name in ("fail", "refuse", "image", "die", "hang", "cancelled", "grow")
]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


class Server:
    """What has been said so far."""

    def __init__(self) -> None:
        self.stopped: list[Any] = []
        self.waiting: list[Any] = []

    def answer(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            self.stopped.append(params["requestId"])
            self.tell()
        elif method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}}
            send({"id": message["id"], "result": {**result, "serverInfo": {"name": "test", "version": "1"}}})
        elif method == "tools/list":
            send({"id": message["id"], "result": {"tools": "none" if sys.argv[1:] == ["no list"] else TOOLS}})
        elif method == "tools/call":
            self.call(message["id"], params)

    def call(self, number: Any, params: dict[str, Any]) -> None:
        name, arguments = params["name"], params.get("arguments", {})
        token = params.get("_meta", {}).get("progressToken")
        results: dict[str, Callable[[], dict[str, Any] | None]] = {
            "echo": lambda: text(arguments["text"], structuredContent={"said": arguments["text"]}),
            "fail": lambda: text("that went wrong", isError=True),
            "image": lambda: {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * arguments["size"]}]},
            "die": lambda: os._exit(3),
            "hang": lambda: self.report(token),
            "cancelled": lambda: self.waiting.append(number),
            "grow": lambda: self.grow(arguments["name"]),
        }
        if name == "refuse":
            send({"id": number, "error": {"code": -32602, "message": "no such thing"}})
            return
        result = results[name]()
        if result is not None:
            send({"id": number, "result": result})
        self.tell()

    def report(self, token: Any) -> None:
        for done in (1, 2):
            progress = {"progressToken": token, "progress": done, "total": 4, "message": f"step {done}"}
            send({"method": "notifications/progress", "params": progress})

    def grow(self, name: str) -> dict[str, Any]:
        TOOLS.append({"name": name, "inputSchema": OBJECT})
        send({"method": "notifications/tools/list_changed"})
        return text("grown")

    def tell(self) -> None:
        """Answer who asks for cancellations, once there is one."""
        while self.stopped and self.waiting:
            send({"id": self.waiting.pop(), "result": text(f"{len(self.stopped)} cancelled")})


def flood(stream: Any, what: str = "garbage\n") -> None:
    while True:
        stream.write(what)
        stream.flush()


def main() -> None:
    how = sys.argv[1] if sys.argv[1:] else ""
    sys.stderr.write(f"test server, {how or 'well'}\n")
    sys.stderr.flush()
    if how in ("garbage", "endless"):
        flood(sys.stdout, "garbage " * 20 + "\n" if how == "garbage" else "x" * (1 << 20))
    if how == "noisy":
        threading.Thread(target=flood, args=(sys.stderr,), daemon=True).start()
        sys.stdout.write("Listening\n\n{not json\n")
    if how == "schemas":
        TOOLS.extend(({"name": "list", "inputSchema": [1]}, {"name": "none"}, {"name": 7}, ECHO, "tool"))
        TOOLS.append({"name": "array", "inputSchema": {"type": "array"}})
    server = Server()
    for line in sys.stdin:
        if how != "mute":
            server.answer(json.loads(line))
        if how == "deaf":
            # It goes on, and its output has an end.
            os.close(1)
            threading.Event().wait()


if __name__ == "__main__":
    main()
