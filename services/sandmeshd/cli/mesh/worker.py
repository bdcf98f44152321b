"""One more gateway of a mesh, in a process of its own that shares the mesh's ports: what `workers` asks for.

The mesh's process starts it, tells it in one line of JSON what it is, and holds the pipe that the line came by: the
gateway ends when that closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from typing import Any

import uvloop

from sandmeshd.auth.channels import open_channel
from sandmeshd.cli.terminal.lifetime import until
from sandmeshd.gateway import open_gateway
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.app import gateway_settings, identities
from sandmeshd.runtime.heap import keep_freed_memory
from sandmeshd.runtime.logs import configure_logging


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m sandmeshd.cli.mesh.worker", description=__doc__)
    parser.add_argument("--owner-fd", type=int, required=True, help="read end of the owner's pipe")
    parser.add_argument("--ready-fd", type=int, required=True, help="closed when it serves")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C is the owner's
    for descriptor in (options.owner_fd, options.ready_fd):
        os.set_inheritable(descriptor, False)
    uvloop.run(_run(options.owner_fd, options.ready_fd))


async def _run(owner: int, ready: int) -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(owner, "rb", buffering=0))
    told: dict[str, Any] = json.loads(await reader.readline())
    settings = MeshSettings.model_validate(told["settings"])
    configure_logging(settings.log_level, settings.log_format)
    keep_freed_memory()
    ended = asyncio.Event()
    watching = asyncio.create_task(_until_closed(reader, ended))
    await until(ended, _serve(settings, told, ready))
    watching.cancel()


async def _serve(settings: MeshSettings, told: dict[str, Any], ready: int) -> None:
    wanted = gateway_settings(settings, tuple(told["listen"]))
    async with (
        open_channel(told["internal"], identities(settings)) as channel,
        open_gateway(wanted, channel, channel) as gateway,
    ):
        await gateway.http.open()
        os.write(ready, b"1")
        os.close(ready)
        await asyncio.Event().wait()


async def _until_closed(reader: asyncio.StreamReader, ended: asyncio.Event) -> None:
    await reader.read()
    ended.set()


if __name__ == "__main__":
    main()
