"""A Python that runs in any root: it brings its own loader, libraries and standard library."""

from sandmeshd.drivers.node.portable_python.bundle import PORTABLE, PortablePython

__all__ = ["PORTABLE", "PortablePython"]
