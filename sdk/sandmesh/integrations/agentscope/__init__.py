"""Workspaces of AgentScope 2 (agentscope) in sandboxes: `pip install "sandmesh[agentscope-workspace]"`.

Their manager for AgentScope's application is in `sandmesh.integrations.agentscope.manager`.
"""

from sandmesh.integrations.agentscope.backend import SandmeshBackend
from sandmesh.integrations.agentscope.workspace import Place, SandmeshWorkspace

__all__ = ["Place", "SandmeshBackend", "SandmeshWorkspace"]
