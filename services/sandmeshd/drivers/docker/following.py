"""Follows the engine's events: tells who watches, and who waits for a container's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import structlog
from aiodocker import DockerError

from sandmeshd.drivers.changes import Watched
from sandmeshd.drivers.docker.engine import Engine
from sandmeshd.drivers.docker.posture import MESH, SANDBOX

EVENTS = ("start", "die", "pause", "unpause", "destroy")
AGAIN_SECONDS = 1.0

log = structlog.get_logger()


class Follower(Watched):
    """What happens to a mesh's containers, as the engine tells it."""

    def __init__(self, engine: Engine, mesh_id: str) -> None:
        super().__init__()
        self._engine = engine
        self._mesh_id = mesh_id
        self._ends: dict[str, asyncio.Event] = {}

    @contextmanager
    def end_of(self, sandbox_id: str) -> Generator[asyncio.Event]:
        """Give what is set when a sandbox's container ends meanwhile."""
        ended = self._ends[sandbox_id] = asyncio.Event()
        try:
            yield ended
        finally:
            self._ends.pop(sandbox_id, None)

    async def follow(self) -> None:
        """Take events for ever; an engine that went away is asked again, and all that changed meanwhile is told."""
        while True:
            try:
                await self._take()
            except (DockerError, OSError, TimeoutError) as error:
                log.warning("the engine's events ended; they are asked for again", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            await self._missed()

    async def _take(self) -> None:
        label = f"{MESH}={self._mesh_id}"
        wanted = json.dumps({"type": ["container"], "label": [label], "event": list(EVENTS)})
        events: Any = self._engine.docker.events
        heard = events.subscribe(create_task=False)
        reading = asyncio.create_task(events.run(filters=wanted))
        try:
            while (event := await heard.get()) is not None:
                self._note(event["Action"], event["Actor"]["Attributes"].get(SANDBOX, ""))
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _note(self, action: str, sandbox_id: str) -> None:
        if action == "die" and sandbox_id in self._ends:
            self._ends[sandbox_id].set()
        # A start is told when the agent listens.
        if action != "start":
            self.changed(sandbox_id)

    async def _missed(self) -> None:
        try:
            found = await self._engine.list(f"{MESH}={self._mesh_id}")
        except Exception as error:
            # It may still be away: then it is asked again.
            log.debug("the engine does not answer yet", reason=str(error))
            return
        for container in found:
            self.changed(container["Labels"][SANDBOX])
