"""Workspaces that outlive their sandboxes, for every driver alike: they travel through the sandbox's own agent."""

from sandmeshd.drivers.keeping.driver import KeepingDriver

__all__ = ["KeepingDriver"]
