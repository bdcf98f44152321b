"""The type of sandboxes that Harbor's tasks run in: `base`, with the directories that Harbor writes to.

`sandmesh up --extension sandmesh.integrations.harbor_sandbox` starts a mesh with it; Harbor is not needed for that.
"""

from __future__ import annotations

from sandmesh import BaseSandboxAsync, SandboxRegistry


@SandboxRegistry.register(
    "runtime-sandbox-base",
    sandbox_type="harbor",
    description="Tasks of Harbor.",
    timeout=None,
    scratch=["/app", "/installed-agent", "/logs", "/runtime", "/solution", "/tests"],
)
class HarborSandboxAsync(BaseSandboxAsync):
    """A sandbox for a task of Harbor."""
