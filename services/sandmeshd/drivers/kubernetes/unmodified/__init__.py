"""Sandboxes whose image has no agent of sandmesh in it: their pods copy it, with its Python, from the agent's image."""
