"""Sandboxes with training environments."""
