"""A kernel of Python that an image's own interpreter runs, by the IPython that is installed for it.

`python -c START SITE`: its standard input is the kernel's channel. Python 3.9 and IPython 7 do. What it lacks is told
as the end of no cell: then the kernel is one of the template's Python.
"""

from __future__ import annotations

import os
import socket
import sys

from sandmeshd.agent.userland.python import kernel_protocol, output

START = """
import sys
sys.path[:] = [path for path in sys.path if path]
sys.path.insert(0, sys.argv[1])
import sandmesh.shared, sandmeshd
del sys.path[0]
from sandmeshd.agent.userland.languages import own_python
own_python.run()
"""
"""The program. What it imports it finds before the image's, and the image's own packages see none of it."""


def run() -> None:
    """Serve cells until the agent goes."""
    channel = output.KernelSocket(socket.socket(fileno=os.dup(0)))
    pipes = [os.dup(1), os.dup(2)]
    nothing = os.open(os.devnull, os.O_RDWR)
    # Output that libraries print while they are imported does not belong to any cell.
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)
    try:
        from sandmeshd.agent.userland.python.kernel import ForkedKernel  # noqa: PLC0415 - it imports IPython

        kernel = ForkedKernel(warm=False, later=True)
    except Exception as error:
        channel.end(kernel_protocol.FAILED, f"{type(error).__name__}: {error}")
        os._exit(1)
    _forget_packages()
    for fd, pipe in enumerate(pipes, start=1):
        os.dup2(pipe, fd)
    channel.ready()
    kernel.serve(channel, pipes, sys.prefix)


def _forget_packages() -> None:
    """Leave `sandmesh` to what is installed in the image under that name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "sandmesh"]:
        del sys.modules[name]
