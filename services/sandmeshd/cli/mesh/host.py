"""Runs a whole mesh in this process, for `sandmesh up`."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from sandmeshd.cli.mesh.announcement import Announcer, Ready, urls
from sandmeshd.cli.mesh.workers import open_workers
from sandmeshd.mesh import Mesh, MeshSettings, open_mesh

KEEP = signal.SIGUSR1
"""Ends a mesh as SIGTERM does, but its sandboxes stay."""


async def host(settings: MeshSettings, announcer: Announcer) -> None:
    """Run a mesh until this is cancelled, and say when it is ready and where."""
    async with AsyncExitStack() as stack:
        with announcer.progress() as progress:
            running = await stack.enter_async_context(open_mesh(settings, progress))
            http = await running.http.open()
            await stack.enter_async_context(open_workers(settings, running.addresses, http))
        asyncio.get_running_loop().add_signal_handler(KEEP, _end_and_keep, running)
        named = urls(running.addresses, tls=settings.gateway.tls_cert is not None)
        announcer.ready(Ready(running.addresses, named, http, os.getpid(), settings.keep_sandboxes))
        await asyncio.Event().wait()


def _end_and_keep(mesh: Mesh) -> None:
    mesh.ending.keep = True
    signal.raise_signal(signal.SIGTERM)
