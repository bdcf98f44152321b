"""Requests to a server other than calls of its tools."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from sandmeshd.agent.mcp.manager.client_process import CallMessages, ClientProcess
from sandmeshd.agent.mcp.manager.server import Server
from sandmeshd.agent.mcp.manager.stderr_tail import plain

_MAX_RESULT: Final = 32 << 20
_INTERNAL_ERROR: Final = -32603


class RequestRefused(Exception):
    """A request was refused, with a code of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def send_request(server: Server, method: str, params: bytes) -> dict[str, Any]:
    """Send a request to a server, which is started where it does not run, and return its result.

    Raises:
        Refused: The server refuses it, ends, or sends what is not a result.
        ToolFailure: It does not start.
    """
    run = await server.ready()
    messages = run.client.request(run.session, method, params)
    try:
        head, result = await _collect(run.client, messages)
    except BaseException:
        run.client.cancel(messages)
        raise
    finally:
        run.client.forget(messages)
    if head.get("is_error") is not True:
        return _read(result)
    code = head.get("code")
    lost = "the MCP server ended in the middle of the request: " if head.get("lost") is True else ""
    message = lost + plain(str(head.get("message", "")))
    raise RequestRefused(code if isinstance(code, int) and not lost else _INTERNAL_ERROR, message)


async def _collect(client: ClientProcess, messages: CallMessages) -> tuple[dict[str, Any], bytes]:
    """Return the last message, and the parts that came before it."""
    result = bytearray()
    while True:
        head, body = await messages.next()
        if head.get("end") is True:
            return head, bytes(result)
        result += body
        if len(result) > _MAX_RESULT:
            raise RequestRefused(_INTERNAL_ERROR, f"the result is larger than {_MAX_RESULT >> 20} MiB")
        if head.get("waits") is True:
            client.acknowledge(messages)


def _read(data: bytes) -> dict[str, Any]:
    try:
        result: object = json.loads(data)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise RequestRefused(_INTERNAL_ERROR, "the server's result is not an object of JSON")
    return cast("dict[str, Any]", result)
