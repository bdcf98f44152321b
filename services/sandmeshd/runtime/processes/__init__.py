"""Processes of a mesh: their owner, their children, their descriptors and their heap."""
