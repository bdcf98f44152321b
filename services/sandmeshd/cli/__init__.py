"""The commands: `sandmesh` for users, `sandmeshd` for services; the only readers of the environment."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def _grpc_version() -> str:
    """Return grpcio's version without importing it."""
    found = find_spec("grpc")
    file = Path(found.origin or "").with_name("_grpcio_metadata.py") if found else Path()
    return file.read_text().partition('"""')[2].partition('"""')[0] if file.is_file() else ""


# gRPC's core reads both at import. It writes lines to standard error, like "Got goaway" when a mesh ends.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
if _grpc_version().startswith(("1.7", "1.8")):
    # Its servers then read sockets in the one thread that also wakes the event loop, in place of four that wake each
    # other for each message. Later versions may not know the name, and would write a line about that.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
