"""Commands that start and stop a mesh."""
