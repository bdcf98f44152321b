"""Progress messages for a create that waits long because its template is being prepared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import MethodNotFound, PermissionDenied, SandmeshError
from sandmesh.shared.traces.context import context_without_trace

POLL_SECONDS = 5.0
"""The delay before the first request, and between requests."""
REQUEST_TIMEOUT_SECONDS = 5.0

log = logging.getLogger("sandmesh")


@contextmanager
def log_progress(connection: Connection, templates: Collection[str]) -> Generator[None]:
    """Log each step of these templates' preparation while the block runs."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    # Most creates finish long before: a timer costs them less than a task.
    timer = loop.call_later(
        POLL_SECONDS,
        lambda: tasks.append(loop.create_task(_poll(connection, templates))),
        context=context_without_trace(),
    )
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()


async def _poll(connection: Connection, templates: Collection[str]) -> None:
    logged: set[str] = set()
    while True:
        try:
            answer = await connection.ask(
                lambda stubs: stubs.sandboxes.GetMeshHealth, sandbox_pb2.GetMeshHealthRequest(), REQUEST_TIMEOUT_SECONDS
            )
        except (PermissionDenied, MethodNotFound):
            log.warning("still waiting for a sandbox of %s; see the mesh's log for why", ", ".join(templates))
            return
        except SandmeshError:
            answer = sandbox_pb2.GetMeshHealthResponse()
        lines = [f"{one.template} is being prepared: {one.step}" for one in _of(answer, templates)]
        for line in lines:
            if line not in logged:
                log.warning("the template %s", line)
        logged.update(lines)
        await asyncio.sleep(POLL_SECONDS)


def _of(answer: sandbox_pb2.GetMeshHealthResponse, templates: Collection[str]) -> list[sandbox_pb2.Preparation]:
    return [preparation for preparation in answer.preparations if preparation.template in templates]
