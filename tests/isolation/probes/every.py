"""All attempts, by name."""

from __future__ import annotations

from . import attempts, calls, files, processes, sockets

MODULES = (calls, files, processes, sockets)
"""What registers attempts when it is imported."""

PROBES = dict(attempts.PROBES)
