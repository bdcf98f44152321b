"""Follows the engine's events: tells who watches, and who waits for a container's end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import structlog
from aiodocker import DockerError

from sandmesh.errors import SandmeshError
from sandmeshd.drivers.api.changes import Watched
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.posture import SANDBOX
from sandmeshd.drivers.node.records import Folders

EVENTS = ("create", "start", "die", "pause", "unpause", "destroy")
AGAIN_SECONDS = 1.0
TIDY_SECONDS = 1.0
ENDED = ("exited", "dead")

log = structlog.get_logger()


class Follower(Watched):
    """What happens to the containers with some labels, as the engine tells it."""

    def __init__(self, engine: Engine, labels: Sequence[str], folders: Folders, *, networks: bool) -> None:
        """Take what to follow; with `networks` each container has one of its own."""
        super().__init__()
        self._networks = networks
        self._engine = engine
        self._labels = labels
        self._folders = folders
        self._ends: dict[str, asyncio.Event] = {}
        self._ignored: set[str] = set()
        self._untidy = asyncio.Event()
        self._untidy.set()

    @property
    def starting(self) -> int:
        """How many wait for their container to start."""
        return len(self._ends)

    def is_starting(self, sandbox_id: str) -> bool:
        """Say whether a sandbox is being started here."""
        return sandbox_id in self._ends

    def ignore(self, container_id: str) -> None:
        """Tell nobody what happens to a container, which is to be removed."""
        self._ignored.add(container_id)

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
        since = time.time()
        while True:
            try:
                await self._take(since)
            except Exception as error:
                # One that was killed breaks off in the middle of what it says.
                log.warning("the engine's events ended; they are asked for again", reason=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            # What happens between the look and the next events is among those.
            since = time.time()
            await self._missed()

    async def _take(self, since: float) -> None:
        wanted = json.dumps({"type": ["container"], "label": list(self._labels), "event": list(EVENTS)})
        events: Any = self._engine.docker.events
        heard = events.subscribe(create_task=False)
        reading = asyncio.create_task(events.run(filters=wanted, since=f"{since:.6f}"))
        try:
            while (event := await heard.get()) is not None:
                self._note(event["Action"], event["Actor"])
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _note(self, action: str, container: Mapping[str, Any]) -> None:
        ignored = container["ID"] in self._ignored
        if action == "destroy":
            self._untidy.set()
            self._ignored.discard(container["ID"])
        if not ignored:
            self._tell(container["Attributes"].get(SANDBOX, ""), ended=action == "die")

    def _tell(self, sandbox_id: str, *, ended: bool) -> None:
        # Of what is being started here its starter tells: without its container it would be taken for ended.
        starting = self._ends.get(sandbox_id)
        if starting is None:
            self.changed(sandbox_id)
        elif ended:
            starting.set()

    async def _missed(self) -> None:
        try:
            found = await self._engine.list(*self._labels)
        except Exception as error:
            # It may still be away: then it is asked again.
            log.debug("the engine does not answer yet", reason=str(error))
            return
        for container in found:
            self._tell(container["Labels"][SANDBOX], ended=container["State"] in ENDED)
        for folder in self._folders.all():
            self._tell(folder.sandbox_id, ended=False)
        self._untidy.set()

    async def tidy(self) -> None:
        """Remove volumes whose container is gone, whoever removed it: an engine that died may have left some."""
        unused: Set[str] = set()
        while True:
            await self._untidy.wait()
            self._untidy.clear()
            try:
                unused = await self._tidied(unused)
            except (SandmeshError, DockerError) as error:
                # When the engine is back it is looked again.
                log.debug("volumes could not be looked for", reason=str(error))
            await asyncio.sleep(TIDY_SECONDS)

    async def _tidied(self, before: Set[str]) -> Set[str]:
        """Remove what was without a container before, too: the engine itself takes a moment. Give what is to wait."""
        found = await self._engine.unused_volumes(*self._labels)
        for name in found & before:
            await self._engine.remove_volume(name)
            log.info("a volume without a container is removed", volume=name)
        networks = await self._unused_networks()
        for name in networks & before:
            await self._engine.remove_network(name)
            log.info("a network without a container is removed", network=name)
        waiting = (found | networks) - before
        if waiting:
            self._untidy.set()
        return waiting

    async def _unused_networks(self) -> Set[str]:
        if not self._networks:
            return set()
        found = await self._engine.unused_networks(*self._labels)
        # That of one which is being started has no container yet.
        return {name for name, labels in found.items() if labels.get(SANDBOX) not in self._ends}
