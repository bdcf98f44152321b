"""A sandbox that is none: for tests of what is made of sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from sandmesh.errors import ToolNotFound
from sandmesh.events import CallEvent
from sandmesh.results import ToolResult
from sandmesh.sandbox.sync import Sandbox


class DummySandbox(Sandbox):
    """It has an id, a type and no tools; it needs no mesh and runs nothing."""

    def __init__(
        self,
        sandbox_id: str | None = None,
        timeout: float = 3000,
        base_url: str | None = None,
        bearer_token: str | None = None,
        sandbox_type: str | None = None,
    ) -> None:
        """Take what every sandbox takes."""
        super().__init__(sandbox_id or "sb_dummy", timeout, base_url, bearer_token, sandbox_type or "dummy")

    def start(self) -> Self:
        """Do nothing."""
        return self

    def close(self) -> None:
        """Do nothing."""

    def get_info(self) -> dict[str, Any]:
        """Give what a record would say."""
        return {"sandbox_id": self.sandbox_id, "sandbox_type": self.sandbox_type, "state": "READY"}

    def get_status(self) -> str:
        """Say that it is ready, as it always is."""
        return "ready"

    def check_health(self) -> bool:
        """Say yes."""
        return True

    def list_tools(self, tool_type: str | None = None) -> dict[str, Any]:
        """Give none."""
        del tool_type
        return {}

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
    ) -> ToolResult:
        """Refuse.

        Raises:
            ToolNotFound: Always.
        """
        del arguments, on_event
        raise ToolNotFound(f"a dummy sandbox has no tool {name!r}: use a BaseSandbox", {"known": ""})
