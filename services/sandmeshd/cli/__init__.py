"""The commands: `sandmesh` for users, `sandmeshd` for services; the only readers of the environment."""

from __future__ import annotations

import os

# gRPC's core writes lines of its own to standard error, like "Got goaway" when a mesh ends. It reads this at import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
