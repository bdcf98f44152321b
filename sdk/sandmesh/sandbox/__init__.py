"""Sandboxes and what they have: kernels, processes, ports, snapshots, MCP servers and sessions."""
