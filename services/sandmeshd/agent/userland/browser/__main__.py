"""`python -I __main__.py`: serves the browser tools to the agent, whose socket is descriptor 0.

The interpreter is the template's own, with its packages: Playwright is one of them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Move the socket away from the standard streams, and serve until the agent goes."""
    sys.path.append(str(Path(__file__).parents[4]))
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    asyncio.run(import_module("sandmeshd.agent.userland.browser.server").serve(channel))


if __name__ == "__main__":
    main()
