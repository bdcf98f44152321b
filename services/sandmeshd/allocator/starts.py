"""Sandboxes being started: each in a task of its own, so that no caller's going away leaves one half made."""

from __future__ import annotations

import asyncio

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import (
    InternalError,
    RuntimeUnavailable,
    SandboxLost,
    SandboxStartFailed,
    SandmeshError,
    WrongState,
)
from sandmeshd.allocator.background import Background
from sandmeshd.allocator.ledger import Ledger
from sandmeshd.allocator.nodes import Node, Nodes
from sandmeshd.allocator.records import Record

log = structlog.get_logger()

Outcome = Record | SandmeshError


class Starts:
    """Takes records from PENDING to READY or FAILED."""

    def __init__(
        self, ledger: Ledger, nodes: Nodes, background: Background, mesh_id: str, timeout_seconds: float
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._background = background
        self._mesh_id = mesh_id
        self._timeout_seconds = timeout_seconds
        self._running: dict[str, asyncio.Task[Outcome]] = {}

    def begin(self, record: Record, ttl_us: int) -> asyncio.Task[Outcome]:
        """Start a PENDING record's sandbox; the task gives its READY record, or why there is none."""
        task = self._background.attempt(self._start(record, ttl_us))
        self._running[record.sandbox_id] = task
        task.add_done_callback(lambda _: self._running.pop(record.sandbox_id, None))
        return task

    async def end(self, sandbox_id: str) -> None:
        """End a start that is under way here; the driver leaves nothing of it."""
        task = self._running.get(sandbox_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _start(self, record: Record, ttl_us: int) -> Outcome:
        try:
            return await self._create(record, ttl_us)
        except SandmeshError as error:
            return await self._failed(record, error)
        except asyncio.CancelledError:
            await self._failed(record, _given_up())
            raise
        except Exception as error:
            log.exception("a driver failed unexpectedly", sandbox_id=record.sandbox_id, node=record.node_id)
            message = "the driver has a defect; the allocator's log tells more"
            return await self._failed(record, InternalError(message, {"detail": type(error).__name__}))

    async def _failed(self, record: Record, error: SandmeshError) -> SandmeshError:
        log.info("a sandbox did not start", sandbox_id=record.sandbox_id, reason=error.reason, error=error.message)
        await self._ledger.failed(record.sandbox_id, error)
        return error

    async def _create(self, record: Record, ttl_us: int) -> Record:
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        if not await self._ledger.started(record.sandbox_id):
            raise _released(record)
        made = await self._made(node, record)
        done, now = await self._ledger.ready(record.sandbox_id, _access(made), ttl_us)
        if not done:
            await node.client.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=record.sandbox_id))
            raise _ended(now) if now.state == "LOST" else _released(record)
        return now

    async def _made(self, node: Node, record: Record) -> pb.RuntimeSandbox:
        try:
            return await self._ask(node, record)
        except WrongState:
            # Its template was unmade since it was placed; building one is never part of a create's own time.
            await self._nodes.prepare(node, record.spec.template)
            return await self._ask(node, record)

    async def _ask(self, node: Node, record: Record) -> pb.RuntimeSandbox:
        request = pb.CreateSandboxRequest(
            sandbox_id=record.sandbox_id,
            mesh_id=self._mesh_id,
            spec=record.spec,
            fencing_token=record.token,
            record_labels=record.labels(),
            ports=record.ports,
        )
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return (await node.client.create_sandbox(request)).sandbox
        except TimeoutError:
            detail = f"its driver did not finish within {self._timeout_seconds:g} s"
            raise SandboxStartFailed(f"the sandbox did not start: {detail}", {"detail": detail}) from None


def _access(made: pb.RuntimeSandbox) -> pb.RuntimeSandbox:
    return pb.RuntimeSandbox(endpoint=made.endpoint, agent_token=made.agent_token, enforced=made.enforced)


def _given_up() -> SandmeshError:
    return SandboxStartFailed("the start was given up", {"detail": "it was released, or its allocator ended"})


def _released(record: Record) -> SandmeshError:
    detail = "it was released while it started"
    return SandboxLost(f"sandbox {record.sandbox_id} is gone: {detail}", {"detail": detail})


def _ended(record: Record) -> SandmeshError:
    detail = record.text("reason")
    return SandboxStartFailed(f"the sandbox ended as it started: {detail}", {"detail": detail})
