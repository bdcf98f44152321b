"""Opens the docker driver: containers of the engine's own runtime."""

from sandmeshd.drivers.engine.app import open_driver

__all__ = ["open_driver"]
