"""Sends the events of the door's webhooks while it is open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from sandmesh.errors import SandmeshError, WrongState
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.e2b.events.lifecycle import E2bLetters
from sandmeshd.facades.webhooks.delivery import run_hooks
from sandmeshd.facades.webhooks.hooks import Hooks

log = structlog.get_logger()
_AGAIN_SECONDS: Final = 10.0


class WebhookSender:
    """The webhooks of a folder, and the task that sends their events once there are any."""

    def __init__(self, clients: MeshClients, folder: Path) -> None:
        self.hooks = Hooks(folder)
        self._clients = clients
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send from now on, where there is a webhook."""
        if self._sending is None and self.hooks.names():
            self._sending = asyncio.create_task(self._send())

    async def close(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        while True:
            try:
                with self.hooks.lock():
                    async with self._clients.client(None) as mesh:
                        await run_hooks(self.hooks, mesh, E2bLetters())
            except WrongState:
                pass  # Another process of the mesh has the door open, and sends.
            except (SandmeshError, OSError) as error:
                log.warning("events are not sent to webhooks", error=str(error))
            await asyncio.sleep(_AGAIN_SECONDS)
