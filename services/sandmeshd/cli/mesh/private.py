"""A mesh for one program: a child process that ends when the pipe to its parent closes.

Run as `python -m sandmeshd.cli.mesh.private --owner-fd N --ready-fd M`. The parent holds the other end of N and nothing
else does, so that its end, a kill -9 too, closes it. On M come JSON lines: progress, then the address or an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
from contextlib import suppress
from typing import Any

import uvloop

from sandmesh.errors import SandmeshError
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.terminal.lifetime import until
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.runtime.full_disk import full_disk_told
from sandmeshd.runtime.heap import keep_freed_memory
from sandmeshd.runtime.logs import configure_logging


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m sandmeshd.cli.mesh.private", description=__doc__)
    parser.add_argument("--owner-fd", type=int, required=True, help="read end of a pipe that only the owner holds")
    parser.add_argument("--ready-fd", type=int, required=True, help="where the address is written")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C is the owner's: it closes the pipe when it ends
    for descriptor in (options.owner_fd, options.ready_fd):
        os.set_inheritable(descriptor, False)
    uvloop.run(_run(options.owner_fd, options.ready_fd))


async def _run(owner: int, ready: int) -> None:
    ended = asyncio.Event()
    _watch_owner(owner, ended)
    try:
        settings = read_settings(mesh_id=f"private-{secrets.token_hex(6)}", ephemeral=True, listen=())
        configure_logging(os.environ.get("SANDMESH_LOG_LEVEL", "WARNING"))
        keep_freed_memory()
        with full_disk_told(settings.state_directory):
            await until(ended, _serve(settings, ready))
    except SandmeshError as error:
        facts = {"reason": error.reason, "message": error.message, "metadata": error.facts}
        _say(ready, {"error": facts})
        sys.exit(1)


async def _serve(settings: MeshSettings, ready: int) -> None:
    def progress(message: str, fraction: float) -> None:
        _say(ready, {"progress": {"message": message, "fraction": fraction}})

    async with open_mesh(settings, progress) as mesh:
        _say(ready, {"address": mesh.addresses[0]})
        os.close(ready)
        await asyncio.Event().wait()


def _watch_owner(owner: int, ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(owner, 4096):
            loop.remove_reader(owner)
            ended.set()

    loop.add_reader(owner, readable)


def _say(ready: int, line: dict[str, Any]) -> None:
    with suppress(OSError):  # the owner is gone; the pipe to it says so too
        os.write(ready, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    main()
