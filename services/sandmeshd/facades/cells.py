"""What cells show, for the doors whose clients have notebooks."""

from __future__ import annotations

import ast
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any, Final, cast

from sandmesh.events import CallEvent, ContentBlock, is_continuation, join_blocks

_SHOWING: Final = frozenset({"display", "print", "show"})


def mime_bundle(block: dict[str, Any]) -> dict[str, Any]:
    """Return the forms of a displayed block by their MIME types."""
    forms: object = block.get("annotations")
    found = cast("dict[str, Any]", forms) if isinstance(forms, dict) else {}
    shown = {kind: form for kind, form in found.items() if form is not None}
    if block.get("type") == "image":
        return {**shown, str(block.get("mimeType", "image/png")): block.get("data", "")}
    return {"text/plain": block.get("text", ""), **shown}


async def whole_blocks(events: AsyncIterable[CallEvent]) -> AsyncGenerator[CallEvent]:
    """Yield a cell's events; a block once what continues it has come."""
    held: ContentBlock | None = None
    more: list[dict[str, Any]] = []
    async for event in events:
        if isinstance(event, ContentBlock) and is_continuation(event.block):
            more.append(event.block)
            continue
        if held is not None:
            join_blocks(held.block, more)
            yield held
            more.clear()
        held = event if isinstance(event, ContentBlock) else None
        if held is None:
            yield event


def ends_in_value(code: str, language: str) -> bool:
    """Return whether code ends in an expression that is likely shown for its value."""
    if language != "python":
        return "display(" not in code
    if code.rstrip().endswith(";"):
        return False
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError):
        # Magics and await outside of functions are IPython's; their last line may well be a value.
        return True
    if not body or not isinstance(body[-1], ast.Expr):
        return False
    last = body[-1].value
    called = last.func if isinstance(last, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return name not in _SHOWING
