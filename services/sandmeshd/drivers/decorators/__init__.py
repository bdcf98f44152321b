"""Workspaces that outlive their sandboxes, for every driver alike: they travel through the sandbox's own agent."""

from sandmeshd.drivers.decorators.kept_workspaces import WorkspaceKeeper

__all__ = ["WorkspaceKeeper"]
