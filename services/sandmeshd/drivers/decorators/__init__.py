"""What outlives sandboxes, for every driver alike: workspaces, through the sandbox's own agent, and volumes."""

from sandmeshd.drivers.decorators.kept_volumes import with_volumes
from sandmeshd.drivers.decorators.kept_workspaces import WorkspaceKeeper

__all__ = ["WorkspaceKeeper", "with_volumes"]
