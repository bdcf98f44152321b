"""Tells the allocator which sandboxes are in use, so that their idle time restarts: a batch every few seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import SandmeshError
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.principal import SERVICE, acting_for
from sandmeshd.gateway.routes.routes import Routes
from sandmeshd.runtime.beat import beat

log = structlog.get_logger()

_MOST = 1000


class Activity:
    """What is in use: sandboxes with a call or another frame on their link, and those that something holds open."""

    def __init__(self, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub, routes: Routes, seconds: float) -> None:
        self._sandboxes = sandboxes
        self._routes = routes
        self._seconds = seconds
        self._held: Counter[str] = Counter()
        self._unsaid: set[str] = set()
        self._out_of_memory: set[str] = set()

    @contextmanager
    def holding(self, sandbox_id: str) -> Generator[None]:
        """Count a sandbox as in use until the block ends: an open desktop or port, a stream beside its calls."""
        self._held[sandbox_id] += 1
        self._routes.links.in_use.set()
        try:
            yield
        finally:
            self._held[sandbox_id] -= 1
            if not self._held[sandbox_id]:
                del self._held[sandbox_id]
            self._unsaid.add(sandbox_id)

    async def report_forever(self) -> None:
        """Report until cancelled; unsent reports are retried with the next batch."""
        while True:
            await self._routes.links.in_use.wait()
            await beat(self._seconds)
            self._unsaid |= self._routes.links.take_used() | set(self._held)
            self._out_of_memory |= self._routes.links.take_out_of_memory()
            self._unsaid |= self._out_of_memory
            try:
                await self._report()
            except SandmeshError as error:
                log.info("which sandboxes are in use could not be reported", error=error.message)
            if self._held or self._unsaid:
                self._routes.links.in_use.set()

    async def _report(self) -> None:
        while self._unsaid:
            batch = sorted(self._unsaid)[:_MOST]
            starved = sorted(self._out_of_memory.intersection(batch))
            request = sandbox_pb2.ReportActivityRequest(sandbox_ids=batch, out_of_memory_ids=starved)
            with acting_for(SERVICE), translated():
                await self._sandboxes.ReportActivity(request, timeout=self._seconds + 5)
            self._unsaid -= set(batch)
            self._out_of_memory -= set(batch)
