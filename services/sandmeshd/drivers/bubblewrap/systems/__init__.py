"""Systems: the Debian packages of a template, from the host or unpacked below a separate directory."""

from sandmeshd.drivers.bubblewrap.systems.systems import Systems

__all__ = ["Systems"]
