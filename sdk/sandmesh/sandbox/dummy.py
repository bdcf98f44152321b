"""A sandbox that runs nothing: for tests of programs that use sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from sandmesh.errors import ToolNotFound
from sandmesh.events import CallEvent
from sandmesh.results import ToolResult
from sandmesh.sandbox.sync import Sandbox


class DummySandbox(Sandbox):
    """A sandbox with an id, a type and no tools; it needs no mesh and runs nothing."""

    def __init__(
        self,
        sandbox_id: str | None = None,
        timeout: float = 3000,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str | None = None,
    ) -> None:
        """Accept what every sandbox accepts."""
        super().__init__(sandbox_id or "sb_dummy", timeout, base_url, bearer_token, sandbox_type or "dummy")

    def start(self) -> Self:
        """Start nothing."""
        return self

    def close(self) -> None:
        """Close nothing."""

    def get_info(self) -> dict[str, Any]:
        """Return a minimal record."""
        return {"sandbox_id": self.sandbox_id, "sandbox_type": self.sandbox_type, "state": "READY"}

    def get_status(self) -> str:
        """Return "ready"."""
        return "ready"

    def check_health(self) -> bool:
        """Return True."""
        return True

    def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Return no tools."""
        del tool_type
        return {}

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> ToolResult:
        """Raise ToolNotFound.

        Raises:
            ToolNotFound: Always.
        """
        del arguments, on_event
        raise ToolNotFound(f"a dummy sandbox has no tool {name!r}: use a BaseSandbox", {"known": ""})
