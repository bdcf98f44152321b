"""The text of a result as a model reads it, for functions that frameworks call."""

from __future__ import annotations

from typing import Any, Self

from sandmesh._tools.forms import write_reply
from sandmesh.results import ToolResult


class ModelText(str):
    """The text of a result; `.result` is the result, whose attributes it has too: `.stdout`, `.exit_code`, ...

    An image is a placeholder in it: `sandmesh.integrations` has adapters that pass images to frameworks.
    """

    __slots__ = ("result",)

    result: ToolResult

    def __new__(cls, result: ToolResult) -> Self:
        """Write a result as text."""
        made = super().__new__(cls, write_reply("openai", "", result)["content"])
        made.result = result
        return made

    def __getnewargs__(self) -> tuple[ToolResult]:  # type: ignore[override]
        """Return what a copy is made of."""
        return (self.result,)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the result."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.result, name)
