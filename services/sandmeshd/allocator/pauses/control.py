"""Pausing and resuming sandboxes, with the intent recorded first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, LeaseLost, RuntimeUnavailable, SandmeshError, WrongState
from sandmeshd.allocator.background_tasks import BackgroundTasks
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.records.ownership import not_found
from sandmeshd.allocator.records.record_store import PauseOutcome, RecordStore
from sandmeshd.allocator.records.records import IDLE_REASON, RecordState
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.runtime.retry import retry_until_available
from sandmeshd.store.notifications import Notifications

log = structlog.get_logger()

REQUEST_REASON: Final = "a request came for it"
_MOST_PAUSING: Final = 16
_WATCH_SECONDS: Final = 5.0
"""After which those who watch look again, as a notification may be lost."""
_SETTLE_SECONDS: Final = 60.0
"""How long the end of a change waits for the store; later a comparison with the node records it."""


@dataclass(frozen=True)
class Cause:
    """Why a sandbox is paused or resumed, and who causes it."""

    reason: str = ""
    actor: str = "holder"
    mode: sandbox_pb2.PauseMode.ValueType = sandbox_pb2.PAUSE_MODE_MEMORY
    """What a pause keeps."""

    @property
    def shown(self) -> str:
        """The reason, with the mode of a pause."""
        mode = f"mode {mode_name(self.mode)}"
        return f"{self.reason} ({mode})" if self.reason else mode


class PauseControl:
    """Take sandboxes from READY to PAUSED and back."""

    def __init__(
        self, records: RecordStore, nodes: Nodes, notifications: Notifications, tasks: BackgroundTasks
    ) -> None:
        self._records = records
        self._nodes = nodes
        self._notifications = notifications
        self._tasks = tasks
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._idle: set[str] = set()
        self._slots = asyncio.Semaphore(_MOST_PAUSING)

    async def pause_idle(self, sandbox_ids: Sequence[str]) -> None:
        """Pause sandboxes that were unused for their idle time; a failure is logged, and a later sweep tries again."""
        fresh = [sandbox_id for sandbox_id in sandbox_ids if sandbox_id not in self._idle]
        self._idle.update(fresh)
        await asyncio.gather(*(self._pause_idle(one) for one in fresh))

    async def _pause_idle(self, sandbox_id: str) -> None:
        try:
            async with self._slots:
                record = await self._records.read(sandbox_id)
                if record is not None and record.state == "READY":
                    await self.change(sandbox_id, record.token, "PAUSED", Cause(IDLE_REASON, "mesh"))
        except SandmeshError as error:
            log.warning("an idle sandbox could not be paused", sandbox_id=sandbox_id, error=error.message)
        finally:
            self._idle.discard(sandbox_id)

    async def watch(self) -> AsyncGenerator[list[str]]:
        """Yield the sandboxes that are paused from now on, by any allocator; first those that are already.

        Raises:
            StoreUnavailable: They cannot be read.
        """
        moment = 0
        with self._notifications.subscribe("paused") as woken:
            while True:
                woken.clear()
                moment, found = await self._records.paused(moment)
                if found:
                    yield found
                await wait_with_timeout(woken, _WATCH_SECONDS)

    async def change(self, sandbox_id: str, token: int, target: str, cause: Cause | None = None) -> RecordState:
        """Bring a sandbox to PAUSED or READY; one that is there already stays.

        Raises:
            SandboxNotFound, LeaseLost, WrongState: As named.
            CapabilityMissing: Its driver cannot; it stays as it was.
            QuotaExceeded: It would count against a quota that is reached; it stays as it was.
        """
        # A client that goes away leaves no intent behind: what was begun is finished without it.
        changing = self._tasks.spawn(self._change(sandbox_id, token, target, cause or Cause()))
        try:
            return await asyncio.shield(changing)
        except asyncio.CancelledError:
            changing.add_done_callback(partial(_log_failure, sandbox_id, target))
            raise

    async def _change(self, sandbox_id: str, token: int, target: str, cause: Cause) -> RecordState:
        # One change at a time: a driver that is called twice may answer in another order.
        async with self._changing.setdefault(sandbox_id, asyncio.Lock()):
            return await self._intend(sandbox_id, token, target, cause)

    async def _intend(self, sandbox_id: str, token: int, target: str, cause: Cause) -> RecordState:
        reply = await self._records.intend(sandbox_id, token, target)
        record = reply.record
        if record is None or reply.kind == "lost":
            raise _refusal(sandbox_id, reply.kind)
        if reply.kind == "busy":
            message = f"sandbox {sandbox_id} is {record.state}, or is being paused or resumed: try again"
            raise WrongState(message, {"state": record.state})
        if reply.quota is not None:
            raise reply.quota.error(1)
        if reply.kind != "done":
            return await self._act(record, target, cause)
        paused = record.text("pause_mode")
        if target == "PAUSED" and paused not in ("", mode_name(cause.mode)):
            message = f"sandbox {sandbox_id} is paused already, in the mode {paused}: resume it first"
            raise WrongState(message, {"state": "PAUSED", "mode": paused})
        return record

    async def _act(self, record: RecordState, target: str, cause: Cause) -> RecordState:
        node = self._nodes.by_id(record.node_id)
        try:
            if node is None:
                raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
            if target == "PAUSED":
                _check_mode(node, cause.mode)
            memory = await _call_driver(node, record.sandbox_id, target, cause.mode)
        except SandmeshError:
            await self._settle(partial(self._records.settle, record.sandbox_id, record.state))
            raise
        settle = partial(self._records.settle, record.sandbox_id, target, cause.reason, cause.actor)
        if target == "PAUSED":
            kept = PauseOutcome(mode_name(cause.mode), memory)
            settle = partial(self._records.settle_pause, record.sandbox_id, cause.shown, cause.actor, kept)
        settled = await self._settle(settle)
        if settled is None:
            message = f"sandbox {record.sandbox_id} was released or lost meanwhile"
            raise WrongState(message, {"state": "STOPPING"})
        return settled

    async def _settle(self, settle: Callable[[], Awaitable[RecordState | None]]) -> RecordState | None:
        """Record how a change ended, also where the store is away just then."""
        return await retry_until_available(settle, _SETTLE_SECONDS)


def _log_failure(sandbox_id: str, target: str, changed: asyncio.Task[RecordState]) -> None:
    """Log why a change failed whose client has gone away."""
    error = None if changed.cancelled() else changed.exception()
    if isinstance(error, SandmeshError):
        log.info("a change failed after its client left", sandbox_id=sandbox_id, to=target, error=error.message)
    elif error is not None:
        log.error("a change failed unexpectedly", sandbox_id=sandbox_id, to=target, exc_info=error)


_NEEDS: Final = {
    sandbox_pb2.PAUSE_MODE_FILES: "pause_files",
    sandbox_pb2.PAUSE_MODE_CHECKPOINT: "pause_checkpoint",
}


def _check_mode(node: Node, mode: sandbox_pb2.PauseMode.ValueType) -> None:
    # A driver that does not know of modes would do another.
    needs = _NEEDS.get(mode)
    if needs and node.info is not None and not getattr(node.info.capabilities, needs):
        message = f"the driver {node.info.name} lacks {needs}: choose another mode, or another driver"
        raise CapabilityMissing(message, {"needs": needs})


def mode_name(mode: sandbox_pb2.PauseMode.ValueType) -> str:
    """Return the name of what a pause keeps, in lower case."""
    return sandbox_pb2.PauseMode.Name(mode).removeprefix("PAUSE_MODE_").lower()


async def _call_driver(
    node: Node, sandbox_id: str, target: str, mode: sandbox_pb2.PauseMode.ValueType
) -> sandbox_pb2.PauseMemory | None:
    """Pause or resume a sandbox; return what the driver reports about its memory."""
    if target == "PAUSED":
        response = await node.client.pause_sandbox(pb.PauseSandboxRequest(sandbox_id=sandbox_id, mode=mode))
        return response.memory if response.HasField("memory") else None
    await node.client.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id=sandbox_id))
    return None


def _refusal(sandbox_id: str, kind: str) -> SandmeshError:
    if kind == "missing":
        return not_found(sandbox_id)
    message = f"the token is not the one in force for sandbox {sandbox_id}: its lease ran out or passed on"
    return LeaseLost(message, {"sandbox_id": sandbox_id})
