"""Sandboxes as containers of a Docker Engine: what the drivers of the engine's runtimes share."""
