"""`python -I -S __main__.py PATH...`: the MCP client process.

Its modules are found only in the PATHs, the agent at descriptors 0 and 1.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module


def main() -> None:
    """Move the two sockets away from the standard streams, and serve."""
    sys.path[:0] = sys.argv[1:]
    channel, passed = socket.socket(fileno=os.dup(0)), socket.socket(fileno=os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    import_module("sandmeshd.agent.mcp.client.placeholders").install()
    import_module("sandmeshd.agent.mcp.client.sessions").serve(channel, passed)


if __name__ == "__main__":
    main()
