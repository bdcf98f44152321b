"""Programs of users, run as they stand in a documentation."""

from __future__ import annotations

from typing import Any


def run(snippet: str, **variables: Any) -> dict[str, Any]:
    """Run a program with these variables and return its names."""
    space: dict[str, Any] = {"__name__": "snippet", **variables}
    exec(compile(snippet, "<snippet>", "exec", dont_inherit=True), space)  # noqa: S102 - it is a user's program
    return space
