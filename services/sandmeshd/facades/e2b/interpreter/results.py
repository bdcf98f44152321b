"""What cells show, as E2B's clients read it."""

from __future__ import annotations

import ast
import json
from typing import Any, Final, cast

_FORMS: Final = {
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
}
_TABLE: Final = "application/vnd.dataresource+json"
_CHART: Final = "e2b/chart"
_LARGEST_LITERAL: Final = 256 << 10


def read_result(block: dict[str, Any], *, is_main: bool) -> dict[str, Any]:
    """Return a displayed block as a result; `is_main` where it is the value of the code's last expression.

    Forms that E2B's clients have no name for are its `extra`, by their types.
    """
    result: dict[str, Any] = {"type": "result", "is_main_result": is_main}
    if block.get("type") == "image":
        result[_FORMS.get(str(block.get("mimeType", "image/png")), "png")] = block.get("data", "")
    elif isinstance(block.get("text"), str):
        text = str(block["text"])
        result["text"] = _unquoted(text)
        result |= _literal(text)
    annotations: object = block.get("annotations")
    for kind, value in cast("dict[str, Any]", annotations if isinstance(annotations, dict) else {}).items():
        if kind in _FORMS:
            result[_FORMS[kind]] = value
        elif kind == _TABLE:
            result["data"] = _columns(value)
        elif kind == _CHART:
            result["chart"] = value
        elif kind == "text/plain":
            # None: the text was made of another form, which E2B's clients read by themselves.
            result["text"] = value
        else:
            result.setdefault("extra", {})[kind] = value
    return {name: value for name, value in result.items() if name != "text" or value is not None}


def _unquoted(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _literal(text: str) -> dict[str, Any]:
    """Return lists and dictionaries as JSON too."""
    if text[:1] not in ("[", "{") or len(text) > _LARGEST_LITERAL:
        return {}
    try:
        value: object = ast.literal_eval(text)
        json.dumps(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return {}
    return {"json": value} if isinstance(value, list | dict) else {}


def _columns(table: Any) -> dict[str, list[Any]]:
    held = cast("dict[str, Any]", table if isinstance(table, dict) else {})
    rows = cast("list[dict[str, Any]]", held.get("data") or [])
    names = [name for name in (rows[0] if rows else {}) if name != "index"]
    return {name: [row.get(name) for row in rows] for name in names}
