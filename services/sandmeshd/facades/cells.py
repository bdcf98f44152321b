"""What cells show, for the doors whose clients have notebooks."""

from __future__ import annotations

import ast
from typing import Any, Final, cast

_SHOWING: Final = frozenset({"display", "print", "show"})


def mime_bundle(block: dict[str, Any]) -> dict[str, Any]:
    """Return the forms of a displayed block by their MIME types."""
    forms: object = block.get("annotations")
    found = cast("dict[str, Any]", forms) if isinstance(forms, dict) else {}
    shown = {kind: form for kind, form in found.items() if form is not None}
    if block.get("type") == "image":
        return {**shown, str(block.get("mimeType", "image/png")): block.get("data", "")}
    return {"text/plain": block.get("text", ""), **shown}


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
