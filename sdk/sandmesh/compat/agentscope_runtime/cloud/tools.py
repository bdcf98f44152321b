"""The tools of a sandbox by their old names and results, as calls of AgentBay's tools."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from sandmesh.compat.agentscope_runtime.cloud.client import AgentBayClient, AgentBayError, read_list, read_object
from sandmesh.compat.agentscope_runtime.cloud.sessions import CloudSession, ToolOutput, get_session
from sandmesh.shared.numbers import decimal

COMMAND_MILLISECONDS: Final = 50_000
CODE_SECONDS: Final = 60
READ_BYTES: Final = 50 * 1024
"""How much of a file the vendor's package reads per request where messages are bounded."""
WRITE_BYTES: Final = 51 * 1024

Arguments: TypeAlias = Mapping[str, Any]
Result: TypeAlias = dict[str, Any]

TOOL_TYPES: Final = MappingProxyType(
    {
        "file": ["read_file", "write_file", "list_directory", "create_directory", "move_file", "delete_file"],
        "command": ["run_shell_command", "run_ipython_cell"],
        "browser": ["browser_navigate"],
        "system": ["screenshot"],
    }
)


async def call_tool(client: AgentBayClient, session_id: str, name: str, arguments: Arguments) -> Result:
    """Run a tool by its old name, else by the vendor's; whatever fails is a result with its reason."""
    try:
        async with client.open() as api:
            session = await get_session(api, session_id)
            return await _TOOLS.get(name, _by_own_name(name))(session, arguments)
    except (AgentBayError, KeyError, ValueError) as error:
        reason = f"the argument {error} is missing" if isinstance(error, KeyError) else str(error)
        return {"success": False, "error": reason, "tool_name": name, "arguments": dict(arguments)}


def list_tools(session_id: str, tool_type: str | None) -> Result:
    """Return the names of the tools, of one type or of all."""
    chosen = TOOL_TYPES.get(tool_type, []) if tool_type else [name for names in TOOL_TYPES.values() for name in names]
    return {
        "tools": list(chosen),
        "tools_by_type": {kind: list(names) for kind, names in TOOL_TYPES.items()},
        "tool_type": tool_type,
        "sandbox_id": session_id,
        "total_count": len(chosen),
    }


async def _run_shell_command(session: CloudSession, arguments: Arguments) -> Result:
    parameters = {"command": arguments["command"], "timeout_ms": COMMAND_MILLISECONDS}
    output = await session.call("shell", parameters)
    wrapped = read_object(output.text)
    if not isinstance(wrapped.get("exit_code"), int):
        # Some images answer with the plain output.
        code = int(output.failed)
        return {"success": not output.failed, "output": output.text, "error": output.error, "exit_code": code}
    code, errors = wrapped["exit_code"], str(wrapped.get("stderr", ""))
    code = code or int(output.failed)
    text = str(wrapped.get("stdout", "")) + errors
    return {"success": code == 0, "output": text, "error": (errors or None) if code else None, "exit_code": code}


async def _run_ipython_cell(session: CloudSession, arguments: Arguments) -> Result:
    parameters = {"code": arguments["code"], "language": "python", "timeout_s": CODE_SECONDS}
    output = await session.call("run_code", parameters)
    if output.failed:
        return {"success": False, "output": "", "error": output.error}
    rich = read_object(output.text)
    if not isinstance(rich.get("result"), list):
        return {"success": True, "output": output.text, "error": None}
    error = str(rich.get("executionError") or "") or None
    return {"success": error is None, "output": _cell_text(rich), "error": error}


def _cell_text(rich: Mapping[str, Any]) -> str:
    """Return the text of a cell's value, of whatever it showed first, else what it printed."""
    shown = [read_object(item) or {"text": item} for item in read_list(rich["result"])]
    shown.sort(key=lambda item: not item.get("isMainResult"))
    first: dict[str, Any] = shown[0] if shown else {}
    return str(first.get("text/plain") or first.get("text") or "".join(rich.get("stdout") or []))


async def _read_file(session: CloudSession, arguments: Arguments) -> Result:
    path = arguments["path"]
    if session.is_linked:
        return _content(await session.call("read_file", {"path": path, "offset": 0, "length": 0}))
    output = await session.call("get_file_info", {"path": path})
    if output.failed:
        return _content(output)
    facts = dict(line.split(":", 1) for line in output.text.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    size = decimal(facts.get("size", ""), 1 << 62)
    if facts.get("isDirectory", "").lower() == "true" or size is None:
        return _content(ToolOutput(f"{path} is not a file that can be read", failed=True))
    return await _read_pieces(session, path, size)


async def _read_pieces(session: CloudSession, path: str, size: int) -> Result:
    # In one piece a text arrives as it is; a larger one is read as bytes, since a piece may end within a character.
    form = {"format": "binary"} if size > READ_BYTES else {}
    pieces: list[bytes] = []
    for offset in range(0, size, READ_BYTES):
        length = min(READ_BYTES, size - offset)
        output = await session.call("read_file", {"path": path, "offset": offset, "length": length, **form})
        if output.failed:
            return _content(output)
        pieces.append(base64.b64decode(output.text) if form else output.text.encode())
    return _content(ToolOutput(b"".join(pieces).decode(errors="replace")))


def _content(output: ToolOutput) -> Result:
    return {"success": not output.failed, "content": "" if output.failed else output.text, "error": output.error}


async def _write_file(session: CloudSession, arguments: Arguments) -> Result:
    rest, mode = str(arguments.get("content", "")), "overwrite"
    while True:
        piece = rest if session.is_linked else rest.encode()[:WRITE_BYTES].decode(errors="ignore")
        output = await session.call("write_file", {"path": arguments["path"], "content": piece, "mode": mode})
        rest, mode = rest[len(piece) :], "append"
        if output.failed or not rest:
            return _done(output)


async def _list_directory(session: CloudSession, arguments: Arguments) -> Result:
    output = await session.call("list_directory", {"path": arguments.get("path", ".")})
    files: list[Result] = []
    for line in [] if output.failed else output.text.splitlines():
        kind, _, name = line.strip().partition("]")
        if kind in {"[DIR", "[FILE"}:
            files.append({"isDirectory": kind == "[DIR", "name": name.strip()})
    return {"success": not output.failed, "files": files, "error": output.error}


async def _take_screenshot(session: CloudSession, arguments: Arguments) -> Result:
    del arguments
    output = await session.call("system_screenshot", {})
    url = None if output.failed else output.text
    return {"success": not output.failed, "screenshot_url": url, "error": output.error}


def _passing(tool: str, *names: str) -> Callable[[CloudSession, Arguments], Awaitable[Result]]:
    """Return a tool that passes the arguments of these names to the vendor's."""

    async def call(session: CloudSession, arguments: Arguments) -> Result:
        return _done(await session.call(tool, {name: arguments[name] for name in names}))

    return call


def _missing(name: str) -> Callable[[CloudSession, Arguments], Awaitable[Result]]:
    """Return a tool of the old client for which AgentBay has none."""

    async def call(session: CloudSession, arguments: Arguments) -> Result:
        del session, arguments
        error = f"AgentBay has no tool that takes a selector, so nothing was done: {name} never worked with its package"
        return {"success": False, "error": error}

    return call


def _by_own_name(name: str) -> Callable[[CloudSession, Arguments], Awaitable[Result]]:
    async def call(session: CloudSession, arguments: Arguments) -> Result:
        if session.servers and name not in session.servers:
            return {"success": False, "error": f"Tool '{name}' not found in AgentBay session"}
        output = await session.call(name, arguments)
        if output.failed:
            return {"success": False, "error": f"Error calling tool '{name}': {output.error}"}
        return {"success": True, "result": output.text}

    return call


def _done(output: ToolOutput) -> Result:
    return {"success": not output.failed, "error": output.error}


_TOOLS: Final[Mapping[str, Callable[[CloudSession, Arguments], Awaitable[Result]]]] = MappingProxyType(
    {
        "run_shell_command": _run_shell_command,
        "run_ipython_cell": _run_ipython_cell,
        "read_file": _read_file,
        "write_file": _write_file,
        "list_directory": _list_directory,
        "create_directory": _passing("create_directory", "path"),
        "move_file": _passing("move_file", "source", "destination"),
        "delete_file": _passing("delete_file", "path"),
        "screenshot": _take_screenshot,
        "browser_navigate": _passing("page_use_navigate", "url"),
        "browser_click": _missing("browser_click"),
        "browser_input": _missing("browser_input"),
    }
)
