"""The docker driver: a container a sandbox, on the engine whose socket is named."""
