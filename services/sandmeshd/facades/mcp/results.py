"""What a call gave, in the Model Context Protocol's words.

Text keeps its order, and `_meta` says which stream it came from; the exit code is a block that a model can read.
"""

from __future__ import annotations

import json
from typing import Any

from mcp import types
from pydantic import TypeAdapter, ValidationError

from sandmesh import ToolResult

STREAM = "sandmesh/stream"
FORMS = "sandmesh/forms"
CALL = "sandmesh/call"

_STANDARD = ("audience", "priority", "lastModified")
_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)


def write_result(result: ToolResult) -> types.CallToolResult:
    """Return a result with all its content; `_meta` has how the call ended."""
    return types.CallToolResult(
        content=[write_block(block) for block in result.content],
        structured_content=result.structured,
        is_error=result.is_error,
        _meta={CALL: result.get("meta", {})},
    )


def write_block(block: dict[str, Any]) -> types.ContentBlock:
    """Return a content block; one of no form that the protocol knows becomes text."""
    plain = {name: value for name, value in block.items() if name not in ("description", "annotations", "_meta")}
    annotations: dict[str, Any] = block.get("annotations") or {}
    standard = {name: annotations[name] for name in _STANDARD if name in annotations}
    forms = {name: form for name, form in annotations.items() if name not in _STANDARD}
    described = {STREAM: block.get("description"), FORMS: forms}
    meta: dict[str, Any] = dict(block.get("_meta") or {})
    meta |= {name: value for name, value in described.items() if value}
    if block.get("description") == "returncode":
        plain["text"] = f"exit code {block.get('text')}"
    try:
        return _BLOCK.validate_python({**plain, "annotations": standard or None, "_meta": meta or None})
    except ValidationError:
        return types.TextContent(text=json.dumps(block))
