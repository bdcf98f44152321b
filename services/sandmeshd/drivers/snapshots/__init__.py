"""Snapshots of sandboxes, for every driver alike: they travel through a sandbox's own agent and stay with the node."""

from sandmeshd.drivers.snapshots.snapshots import Snapshots

__all__ = ["Snapshots"]
