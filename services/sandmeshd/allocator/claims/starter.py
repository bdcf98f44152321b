"""Starts of sandboxes: each in its own task, so that a client that disconnects leaves none half created.

A store that does not answer delays a start and does not end it: no other process would finish its record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import (
    InternalError,
    MeshUnavailable,
    RuntimeUnavailable,
    SandboxLost,
    SandboxStartFailed,
    SandmeshError,
    WrongState,
)
from sandmesh.shared.traces.context import step_of
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.nodes.node import Node, silent_driver
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.runtime.processes.descriptors import lack_of_descriptors
from sandmeshd.runtime.retry import retry_until_available
from sandmeshd.runtime.telemetry.phases import current_phases, measured, recorded_phases

log = structlog.get_logger()

Outcome = RecordState | SandmeshError

_PORT_CONFLICTS = 16
"""How many leased ports may be in use by others before an attempt fails."""

_LONGEST_PAUSE_SECONDS = 1.0

# What another node, or the same one a moment later, may do better.
_PASSING = (SandboxStartFailed, RuntimeUnavailable, MeshUnavailable)


class ClaimStarter:
    """Start sandboxes: from PENDING to READY or FAILED, on another node where one fails."""

    def __init__(
        self, settings: AllocatorSettings, records: RecordStore, nodes: Nodes, tasks: BackgroundTasks, mesh_id: str
    ) -> None:
        self._settings = settings
        self._records = records
        self._nodes = nodes
        self._tasks = tasks
        self._mesh_id = mesh_id
        self._running: dict[str, asyncio.Task[Outcome]] = {}

    @property
    def tasks(self) -> BackgroundTasks:
        """The tasks that starts run as, with others that must not end with their client."""
        return self._tasks

    @property
    def in_progress(self) -> list[str]:
        """The sandboxes that this allocator is starting."""
        return list(self._running)

    def start(self, record: RecordState) -> asyncio.Task[Outcome]:
        """Start a PENDING record's sandbox; the task returns its READY record, or the error."""
        task = self._tasks.attempt(self._traced_start(record))
        self._running[record.sandbox_id] = task
        task.add_done_callback(lambda _: self._running.pop(record.sandbox_id, None))
        return task

    async def cancel(self, sandbox_id: str) -> None:
        """Cancel a start that is in progress here; the driver leaves nothing of it."""
        task = self._running.get(sandbox_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _traced_start(self, record: RecordState) -> Outcome:
        facts = {"sandmesh.sandbox_id": record.sandbox_id, "sandmesh.template": record.spec.template}
        with step_of("start sandbox", facts), recorded_phases():
            return await self._start(record)

    async def _start(self, record: RecordState) -> Outcome:
        try:
            return await self._attempts(record)
        except SandmeshError as error:
            return await self._failed(record, error)
        except asyncio.CancelledError:
            await self._failed(record, _cancelled())
            raise
        except Exception as error:
            log.exception("a driver failed unexpectedly", sandbox_id=record.sandbox_id, node=record.node_id)
            return await self._failed(record, lack_of_descriptors(error) or _defect(error))

    async def _failed(self, record: RecordState, error: SandmeshError) -> SandmeshError:
        node = self._nodes.by_id(record.node_id)
        if node is not None and isinstance(error, MeshUnavailable) and "driver" not in error.facts:
            error = silent_driver(node.name, error)
        log.info("a sandbox did not start", sandbox_id=record.sandbox_id, reason=error.reason, error=error.message)
        await retry_until_available(partial(self._records.failed, record.sandbox_id, error))
        return error

    async def _attempts(self, record: RecordState) -> RecordState:
        tried: list[str] = []
        returns_until = asyncio.get_running_loop().time() + self._settings.driver_return_seconds
        while True:
            node = self._nodes.by_id(record.node_id)
            try:
                made = await self._create(node, record)
            except _PASSING as error:
                tried.append(record.node_id)
                if node is not None:
                    node.breaker.failed(error.message)
                # A driver that went away may be one that is being restarted.
                waits = isinstance(error, MeshUnavailable) and asyncio.get_running_loop().time() < returns_until
                if len(tried) >= self._settings.create_attempts and not waits:
                    raise
                record = await self._elsewhere(record, tried, error)
            else:
                if node is not None:
                    node.breaker.succeeded()
                return made

    async def _elsewhere(self, record: RecordState, tried: Sequence[str], error: SandmeshError) -> RecordState:
        want = (await self._nodes.place(record.spec)).want
        if record.spec.snapshot_id:
            # No other node has the snapshot.
            want = replace(want, nodes=[node for node in want.nodes if node.id == record.node_id])
        moved = await retry_until_available(partial(self._records.retry, record.sandbox_id, want, tried, error))
        if moved is None:
            raise error
        log.info("a start is retried", sandbox_id=record.sandbox_id, node=moved.node_id, error=error.message)
        if moved.node_id in tried:
            pause = self._settings.create_pause_seconds * 2 ** (len(tried) - 1)
            await asyncio.sleep(min(pause, _LONGEST_PAUSE_SECONDS))
        return moved

    async def _create(self, node: Node | None, record: RecordState) -> RecordState:
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        if not await retry_until_available(partial(self._records.started, record.sandbox_id)):
            raise _released(record)
        with measured("start"):
            made = await self._create_prepared(node, record)
        ready = partial(self._records.ready, record.sandbox_id, _access(made), current_phases())
        done, now = await retry_until_available(ready)
        if not done:
            await self._abandon(node, record.sandbox_id, now)
        return now

    async def _abandon(self, node: Node, sandbox_id: str, now: RecordState) -> None:
        """Delete what was created for a record that has changed, unless another allocator took it over."""
        if now.state not in ("PENDING", "STARTING", "READY") or now.owner == self._records.owner:
            await node.client.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox_id))
        raise _ended(now) if now.text("ended") and now.state == "STARTING" else _released(now)

    async def _create_prepared(self, node: Node, record: RecordState) -> pb.RuntimeSandbox:
        try:
            return await self._create_with_ports(node, record)
        except WrongState:
            # Its template was removed since it was placed; building one never counts as a create's own time.
            await self._nodes.preparations.prepare(node, record.spec.template)
            return await self._create_with_ports(node, record)

    async def _create_with_ports(self, node: Node, record: RecordState) -> pb.RuntimeSandbox:
        """Create it with the ports that are leased, and with others where one is in use."""
        for _ in range(_PORT_CONFLICTS):
            try:
                return await self._call_driver(node, record)
            except SandboxStartFailed as error:
                record = await self._with_another_port(node, record, error)
        return await self._call_driver(node, record)

    async def _with_another_port(self, node: Node, record: RecordState, error: SandboxStartFailed) -> RecordState:
        taken = error.facts.get("taken_port", "")
        if not taken.isdecimal() or node.info is None:
            raise error
        wanted, rest_us = self._nodes.wanted(node.info), round(self._settings.clash_seconds * 1_000_000)
        move = partial(self._records.move_port, record.sandbox_id, wanted, int(taken), rest_us)
        moved = await retry_until_available(move)
        if moved is None:
            fix = f"free ports from {wanted.first} to {wanted.last} there, or give the driver a wider range"
            message = f"{error.message}, and node {wanted.id} has no other to lease: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from None
        log.warning("a leased port is in use; another is leased", sandbox_id=record.sandbox_id, port=taken)
        return moved

    async def _call_driver(self, node: Node, record: RecordState) -> pb.RuntimeSandbox:
        request = pb.CreateSandboxRequest(
            sandbox_id=record.sandbox_id,
            mesh_id=self._mesh_id,
            spec=record.spec,
            fencing_token=record.token,
            record_labels=record.labels(),
            ports=record.ports,
            workspace_key=record.workspace,
        )
        seconds = self._settings.create_timeout_seconds + (self._settings.workspace_seconds if record.workspace else 0)
        facts = {"sandmesh.driver": node.name, "sandmesh.node": record.node_id}
        try:
            with step_of("driver CreateSandbox", facts, "CLIENT"):
                async with asyncio.timeout(seconds):
                    return (await node.client.create_sandbox(request)).sandbox
        except TimeoutError:
            detail = f"its driver did not finish within {seconds:g} s"
            raise SandboxStartFailed(f"the sandbox did not start: {detail}", {"detail": detail}) from None


def _access(made: pb.RuntimeSandbox) -> pb.RuntimeSandbox:
    return pb.RuntimeSandbox(
        endpoint=made.endpoint, agent_token=made.agent_token, enforced=made.enforced, nano_price=made.nano_price
    )


def _defect(error: Exception) -> InternalError:
    message = "the driver has a defect; see the allocator's log"
    return InternalError(message, {"detail": type(error).__name__})


def _cancelled() -> SandmeshError:
    return SandboxStartFailed("the start was cancelled", {"detail": "it was released, or its allocator ended"})


def _released(record: RecordState) -> SandmeshError:
    detail = "it was released while it started"
    return SandboxLost(f"sandbox {record.sandbox_id} is gone: {detail}", {"detail": detail})


def _ended(record: RecordState) -> SandmeshError:
    detail = record.text("ended")
    return SandboxStartFailed(f"the sandbox ended as it started: {detail}", {"detail": detail})
