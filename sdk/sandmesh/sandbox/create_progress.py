"""Says what a create waits for that takes long: a template that is being made ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager

from sandmesh._client.connection import Connection
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import MethodNotFound, PermissionDenied, SandmeshError

TELL_SECONDS = 5.0
"""After which it is asked for the first time, and then again."""
ASK_SECONDS = 5.0

log = logging.getLogger("sandmesh")


@contextmanager
def telling(connection: Connection, templates: Collection[str]) -> Generator[None]:
    """Log each step of what these templates' sandboxes wait for, as long as the block takes."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    # Most creates are over long before: a timer costs them less than a task.
    timer = loop.call_later(TELL_SECONDS, lambda: tasks.append(loop.create_task(_tell(connection, templates))))
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()


async def _tell(connection: Connection, templates: Collection[str]) -> None:
    told: set[str] = set()
    while True:
        try:
            answer = await connection.ask(
                lambda stubs: stubs.sandboxes.GetMeshHealth, sandbox_pb2.GetMeshHealthRequest(), ASK_SECONDS
            )
        except (PermissionDenied, MethodNotFound):
            log.warning("still waiting for a sandbox of %s; the log of the mesh says for what", ", ".join(templates))
            return
        except SandmeshError:
            answer = sandbox_pb2.GetMeshHealthResponse()
        lines = [f"{one.template} is being made ready: {one.step}" for one in _of(answer, templates)]
        for line in lines:
            if line not in told:
                log.warning("the template %s", line)
        told.update(lines)
        await asyncio.sleep(TELL_SECONDS)


def _of(answer: sandbox_pb2.GetMeshHealthResponse, templates: Collection[str]) -> list[sandbox_pb2.Preparation]:
    return [one for one in answer.preparations if one.template in templates]
