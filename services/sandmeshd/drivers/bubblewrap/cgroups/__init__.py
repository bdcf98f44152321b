"""Control groups of sandboxes, versions 1 and 2."""
