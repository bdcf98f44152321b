"""Sandboxes in another company's cloud, by its API: no mesh, no driver and no container has a part in them."""

from sandmesh.compat.agentscope_runtime.cloud.agentbay import AgentbaySandbox, AsyncAgentbaySandbox
from sandmesh.compat.agentscope_runtime.cloud.sandbox import AsyncCloudSandbox, CloudSandbox

__all__ = ["AgentbaySandbox", "AsyncAgentbaySandbox", "AsyncCloudSandbox", "CloudSandbox"]
