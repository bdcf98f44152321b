"""Sandboxes from images that have no agent of sandmesh in them: it is mounted, with its own Python."""
