"""The subscription to the engine's events, for watchers and for starts that wait for their container's end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.engine.container_config import SANDBOX
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.node.records import MeshFolders

EVENTS = ("create", "start", "die", "pause", "unpause", "destroy")
RETRY_SECONDS = 1.0
ENDED = ("exited", "dead")

log = structlog.get_logger()


class EventSubscriber(Watched):
    """Turns the events of containers with some labels into changes of sandboxes."""

    def __init__(self, engine: Engine, labels: Sequence[str]) -> None:
        super().__init__()
        self._engine = engine
        self._labels = labels
        self._starts: dict[str, asyncio.Event] = {}
        self._ignored: set[str] = set()
        self.removed = asyncio.Event()
        """Set when containers may have been removed since it was cleared."""
        self.removed.set()

    @property
    def starting(self) -> int:
        """The number of containers that are being started."""
        return len(self._starts)

    def is_starting(self, sandbox_id: str) -> bool:
        """Return whether a sandbox is being started here."""
        return sandbox_id in self._starts

    def ignore(self, container_id: str) -> None:
        """Ignore the events of a container that is about to be removed."""
        self._ignored.add(container_id)

    @contextmanager
    def end_of(self, sandbox_id: str) -> Generator[asyncio.Event]:
        """Yield an event that is set if the container of a sandbox ends before the block does."""
        ended = self._starts[sandbox_id] = asyncio.Event()
        try:
            yield ended
        finally:
            self._starts.pop(sandbox_id, None)

    async def follow(self, folders: MeshFolders) -> None:
        """Receive events forever; after a disconnection every sandbox counts as changed."""
        since = time.time()
        while True:
            try:
                await self._receive(since)
            except Exception as error:
                # An engine that is killed breaks off in the middle of an event.
                log.warning("the engine's events ended; the subscription is retried", reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            # Events between the resynchronization and the next subscription are replayed by it.
            since = time.time()
            await self._resync(folders)

    async def _receive(self, since: float) -> None:
        filters = json.dumps({"type": ["container"], "label": list(self._labels), "event": list(EVENTS)})
        events: Any = self._engine.docker.events
        subscription = events.subscribe(create_task=False)
        reading = asyncio.create_task(events.run(filters=filters, since=f"{since:.6f}"))
        try:
            while (event := await subscription.get()) is not None:
                self._handle(event["Action"], event["Actor"])
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _handle(self, action: str, container: Mapping[str, Any]) -> None:
        ignored = container["ID"] in self._ignored
        if action == "destroy":
            self.removed.set()
            self._ignored.discard(container["ID"])
        if not ignored:
            self._notify(container["Attributes"].get(SANDBOX, ""), ended=action == "die")

    def _notify(self, sandbox_id: str, *, ended: bool) -> None:
        # The starter reports on what it starts: before its container exists it would be taken for ended.
        starting = self._starts.get(sandbox_id)
        if starting is None:
            self.changed(sandbox_id)
        elif ended:
            starting.set()

    async def _resync(self, folders: MeshFolders) -> None:
        try:
            containers = await self._engine.list(*self._labels)
        except Exception as error:
            # It may still be down; the next attempt resynchronizes again.
            log.debug("the engine does not answer yet", reason=str(error))
            return
        for container in containers:
            self._notify(container["Labels"][SANDBOX], ended=container["State"] in ENDED)
        for folder in folders.all():
            self._notify(folder.sandbox_id, ended=False)
        self.removed.set()
