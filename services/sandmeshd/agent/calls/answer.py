"""The results of tools' handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A tool's result: MCP content blocks, and a structured result where it has one."""

    content: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    structured: Mapping[str, Any] | None = None


class ToolFailure(Exception):
    """A failure of what the caller requested: a result with `is_error`, never a broken call.

    The message says what happened and what to do.
    """


def text(content: str, description: str = "stdout") -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": content, "annotations": None, "description": description}
