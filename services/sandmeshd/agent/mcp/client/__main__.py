"""`python -I -S __main__.py PATH...`: the MCP host. Its modules are found in the PATHs alone, its agent at 0 and 1."""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module


def main() -> None:
    """Take the two sockets out of the way of what prints, and serve."""
    sys.path[:0] = sys.argv[1:]
    channel, handed = socket.socket(fileno=os.dup(0)), socket.socket(fileno=os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    import_module("sandmeshd.agent.mcp.client.hub").serve(channel, handed)


if __name__ == "__main__":
    main()
