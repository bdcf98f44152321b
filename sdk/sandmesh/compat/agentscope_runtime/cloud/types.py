"""The types of sandboxes, with that of AgentBay's."""

from __future__ import annotations

from typing import Final

from sandmesh import SandboxType

AGENTBAY: Final = SandboxType.add_member("AGENTBAY")

__all__ = ["AGENTBAY", "SandboxType"]
