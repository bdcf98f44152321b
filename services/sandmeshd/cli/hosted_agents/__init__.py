"""`sandmesh worker`: sandboxes for agents that a vendor hosts."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = "managed-agents"
"""The template whose Python has what a session's tools run with."""
