"""What an MCP client's model is sent of a result: a bounded part, and where the whole is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from mcp import types
from pydantic import TypeAdapter, ValidationError

from sandmesh import SandboxAsync, ToolResult
from sandmesh.replies import read_reply_characters, whole_text
from sandmesh.sandbox.tools.reply_files import ReplyFiles
from sandmeshd.facades.mcp.large_results import LargeResults

CHARACTERS = "sandmesh/replyCharacters"
"""The entry of a call's `_meta` that bounds its reply in place of the session's setting."""


class SessionReplies:
    """Writes results for one session's client: short for a model, with the whole in the workspace and as resources."""

    def __init__(self, characters: int, large: LargeResults) -> None:
        self._characters = characters
        self._large = large
        self._files: WeakKeyDictionary[SandboxAsync, ReplyFiles] = WeakKeyDictionary()

    def bound(self, meta: Mapping[str, Any] | None) -> int:
        """Return the bound of a call's reply, by its `_meta` or the session's setting.

        Raises:
            InvalidArgument: It is not a whole number above 0.
        """
        value = (meta or {}).get(CHARACTERS)
        return self._characters if value is None else read_reply_characters(value)

    async def write(
        self, box: SandboxAsync, result: ToolResult, bound: int, is_structured: Callable[[], Awaitable[bool]]
    ) -> types.CallToolResult:
        """Return a result as the client is sent it; `is_structured` is asked whether its tool has an output schema."""
        shown = await self._files.setdefault(box, ReplyFiles(box)).shorten(result, bound)
        written = write_result(shown)
        text = whole_text(result)
        if len(text) > bound:
            written.content.extend(self._large.keep_text(text))
        structure = "" if result.structured is None else json.dumps(result.structured)
        if len(structure) > bound:
            note = f"[The structured result of {len(structure)} characters was left out; the links name all of it.]"
            links = self._large.keep_text(structure, "application/json")
            # A client that validates against the tool's schema takes a result without structure only as an error.
            failed = written.is_error or await is_structured()
            content = [*written.content, types.TextContent(text=note), *links]
            written = written.model_copy(update={"content": content, "structured_content": None, "is_error": failed})
        return self._large.shorten(written)


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
