"""What outlives sandboxes, for every driver alike: workspaces, through the sandbox's own agent, and volumes."""

from sandmeshd.drivers.decorators.descriptor_reserve import reserving
from sandmeshd.drivers.decorators.kept_volumes import with_volumes
from sandmeshd.drivers.decorators.kept_workspaces import WorkspaceKeeper

__all__ = ["WorkspaceKeeper", "reserving", "with_volumes"]
