"""`python -I __main__.py`: imports an environment and forks its instances; descriptor 0 is the socket to the agent.

The interpreter is the template's own, with its packages.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Move the socket away from the standard streams, and serve until the agent goes."""
    sys.path.append(str(Path(__file__).parents[4]))
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    import_module("sandmeshd.agent.userland.training.host").serve(control)


if __name__ == "__main__":
    main()
