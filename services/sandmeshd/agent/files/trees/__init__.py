"""Directories as streams: archives of workspaces, snapshots, and what changed in an image."""
