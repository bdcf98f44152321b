"""The drivers of a mesh as nodes."""
