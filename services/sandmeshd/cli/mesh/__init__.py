"""Commands that start and end a mesh."""
