"""Grants of running sandboxes: read, changed, and served as RPCs."""
