"""How what the mesh refuses reaches an MCP client.

In a tool call it is a result with `isError`, whose text says what happened and what to do, because a model reads
results and no protocol errors; only a tool that is not there is a protocol error, as the protocol asks. Everything else
that fails is a protocol error, whose data has the reason and its facts.
"""

from __future__ import annotations

from mcp import MCPError, types

from sandmesh.errors import (
    InvalidArgument,
    LeaseLost,
    NotFound,
    SandboxLost,
    SandboxNotFound,
    SandmeshError,
    SessionNotFound,
    ToolNotFound,
)

ERROR = "sandmesh/error"
RESOURCE_NOT_FOUND = -32002

GONE = (SandboxLost, SandboxNotFound, SessionNotFound, LeaseLost)
"""After these the sandbox is no more."""

_REPLACED = "The sandbox is gone, and with it its variables and files; the next call gets a new one."


def failed_result(error: SandmeshError) -> types.CallToolResult:
    """Return the result of a call that the mesh refused or could not go on with."""
    text = f"{error.reason}: {error.message}"
    if isinstance(error, GONE):
        text = f"{text}\n{_REPLACED}"
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True, _meta={ERROR: _facts(error)})


def unknown_tool(error: ToolNotFound) -> MCPError:
    """Return the protocol's error for a tool that is not there."""
    return MCPError(types.INVALID_PARAMS, error.message, _facts(error))


def mesh_error(error: SandmeshError) -> MCPError:
    """Return the protocol's error for what the mesh refused outside of a call."""
    code = types.INVALID_PARAMS if isinstance(error, InvalidArgument | NotFound) else types.INTERNAL_ERROR
    return MCPError(code, f"{error.reason}: {error.message}", _facts(error))


def file_error(error: OSError, uri: str) -> MCPError:
    """Return the protocol's error for a file that cannot be read."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    code = RESOURCE_NOT_FOUND if missing else types.INVALID_PARAMS
    return MCPError(code, f"{uri} cannot be read: {error.strerror or error}", {"uri": uri})


def _facts(error: SandmeshError) -> dict[str, object]:
    return {"reason": error.reason, "facts": error.facts, "retryable": error.retryable}
