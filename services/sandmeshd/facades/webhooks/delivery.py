"""The delivery of a webhook's events: at least once, in order for each sandbox, without the mesh waiting for it.

What was read of the mesh's events and not yet delivered is bounded: beyond, no more is read. The mesh keeps events
whether they are read or not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from typing import Any, Final

import structlog

from sandmesh.errors import NotFound, SandmeshError
from sandmesh.mesh import MeshAsync, SandboxEvent, SandboxInfo
from sandmeshd.facades.webhooks.endpoint import (
    CloudEvents,
    DeliveryError,
    Endpoint,
    EndpointGone,
    LetterForm,
    open_endpoint,
)
from sandmeshd.facades.webhooks.hooks import Hook, Hooks

log = structlog.get_logger()

MOST_WAITING: Final = 1_000
SIMULTANEOUS: Final = 16
FIRST_SECONDS, LONGEST_SECONDS = 0.5, 300.0
_SAVE_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 2.0
_INFOS: Final = 2_000
_JITTER = random.Random()  # noqa: S311 - jitter, not cryptography


class _Letters:
    """Writes the letters of events, with what is known of their sandboxes."""

    def __init__(self, form: LetterForm, mesh: MeshAsync) -> None:
        self.form = form
        self._mesh = mesh
        self._infos: OrderedDict[str, SandboxInfo | None] = OrderedDict()

    async def write(self, event: SandboxEvent) -> dict[str, Any]:
        """Return the letter of an event."""
        return self.form.letter(event, await self.info(event))

    async def info(self, event: SandboxEvent) -> SandboxInfo | None:
        """Return the record of an event's sandbox, where it is known."""
        if event.sandbox_id not in self._infos:
            found: SandboxInfo | None = None
            try:
                if event.sandbox_id:
                    found = await self._mesh.sandboxes.get(event.sandbox_id)
            except NotFound:
                pass
            except SandmeshError:
                return None
            self._infos[event.sandbox_id] = found
            if len(self._infos) > _INFOS:
                self._infos.popitem(last=False)
        return self._infos.get(event.sandbox_id)


class _Undelivered:
    """The events that were read and are to be delivered, a bounded number."""

    def __init__(self, cursor: str, most: int) -> None:
        self.cursor = cursor
        """All events up to this one were delivered, given up or filtered out."""
        self._newest = cursor
        self._before: OrderedDict[str, str] = OrderedDict()
        """Each with the one that was read before it."""
        self.room = asyncio.Semaphore(most)

    def add(self, event_id: str) -> None:
        """Add an event, for which there was room."""
        self._before[event_id], self._newest = self._newest, event_id

    def settle(self, event_id: str) -> None:
        """Take an event out; one that is refused for long holds up only those of its sandbox."""
        del self._before[event_id]
        self.cursor = next(iter(self._before.values()), self._newest)
        self.room.release()


class Delivery:
    """Delivers the events of one webhook."""

    def __init__(
        self, hooks: Hooks, hook: Hook, mesh: MeshAsync, form: LetterForm, *, most_waiting: int = MOST_WAITING
    ) -> None:
        self._hooks = hooks
        self._hook = hook
        self._mesh = mesh
        self._progress = hooks.progress(hook.name)
        self._undelivered = _Undelivered(self._progress.cursor, most_waiting)
        self._queues: dict[str, deque[SandboxEvent]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(SIMULTANEOUS)
        self._letters = _Letters(form, mesh)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Deliver until the endpoint wants no more events."""
        if self._progress.ended:
            return
        async with open_endpoint(self._hook, self._letters.form) as endpoint:
            tasks = [asyncio.create_task(work) for work in (self._read(endpoint), self._save())]
            try:
                done, _ = await asyncio.wait([*tasks, self._end], return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                running = [*tasks, *self._workers]
                for task in running:
                    task.cancel()
                await asyncio.wait(running)
                self._hooks.save(self._hook.name, self._progress)

    async def _read(self, endpoint: Endpoint) -> None:
        after = self._progress.cursor
        while True:
            try:
                await self._check_gap(after)
                async with self._mesh.events.follow(after=after) as events:
                    async for event in events:
                        await self._undelivered.room.acquire()
                        self._take(event, endpoint)
                        after = event.event_id
            except SandmeshError as error:
                log.warning("a webhook reads no events", webhook=self._hook.name, error=error.message)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _check_gap(self, after: str) -> None:
        """Count a gap where the mesh does not have the events after one any more."""
        oldest = await self._mesh.events.list(limit=1, after="0-0")
        if after != "0-0" and oldest and _order(oldest[0].event_id) > _order(after):
            self._progress.gaps += 1
            log.warning("events are gone that a webhook had not sent", webhook=self._hook.name, after=after)

    def _take(self, event: SandboxEvent, endpoint: Endpoint) -> None:
        self._undelivered.add(event.event_id)
        queue = self._queues.get(event.sandbox_id)
        if queue is not None:
            queue.append(event)
            return
        self._queues[event.sandbox_id] = deque([event])
        worker = asyncio.create_task(self._deliver_all(event.sandbox_id, endpoint))
        self._workers.add(worker)
        worker.add_done_callback(self._forget)

    def _forget(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        failure = None if worker.cancelled() else worker.exception()
        if failure is not None and not self._end.done():
            self._end.set_exception(failure)

    async def _deliver_all(self, sandbox_id: str, endpoint: Endpoint) -> None:
        """Deliver the events of one sandbox, one after the other."""
        queue = self._queues[sandbox_id]
        while queue:
            event = queue[0]
            if await self._wanted(event):
                await self._deliver(event, endpoint)
            queue.popleft()
            self._undelivered.settle(event.event_id)
            self._progress.cursor = self._undelivered.cursor
        del self._queues[sandbox_id]

    async def _deliver(self, event: SandboxEvent, endpoint: Endpoint) -> None:
        letter = await self._letters.write(event)
        began, delay, attempts = time.monotonic(), FIRST_SECONDS, 0
        while True:
            attempts += 1
            try:
                async with self._turns:
                    await endpoint.post(letter)
            except EndpointGone:
                self._progress.ended = "the endpoint answered 410: it wants no more events"
                if not self._end.done():
                    self._end.set_result(None)
                await asyncio.Event().wait()  # The end of the run ends this; the event stays undelivered.
            except DeliveryError as error:
                self._progress.failures += 1
                self._progress.last_failure = str(error)
                if time.monotonic() - began + delay > self._hook.give_up_seconds:
                    self._give_up(letter, attempts, str(error))
                    return
                await asyncio.sleep(delay * _JITTER.uniform(0.5, 1.0))
                delay = min(2 * delay, LONGEST_SECONDS)
            else:
                self._progress.delivered += 1
                return

    def _give_up(self, letter: dict[str, Any], attempts: int, error: str) -> None:
        self._progress.dead += 1
        self._hooks.bury(self._hook.name, {"event": letter, "attempts": attempts, "error": error}, self._progress.dead)
        log.warning("an event was given up", webhook=self._hook.name, event_id=letter["id"], error=error)

    async def _wanted(self, event: SandboxEvent) -> bool:
        hook = self._hook
        if hook.kinds and event.kind not in hook.kinds:
            return False
        if hook.user_id and event.user_id != hook.user_id:
            return False
        if hook.project and event.to_json().get("project", "") != hook.project:
            return False
        if not hook.template:
            return True
        # Where nothing is known of a sandbox that is gone, its events are sent rather than lost.
        info = await self._letters.info(event)
        return info is None or info.template == hook.template

    async def _save(self) -> None:
        saved = ""
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            if saved != (now := repr(self._progress)):
                await asyncio.to_thread(self._hooks.save, self._hook.name, self._progress)
                saved = now


async def run_hooks(hooks: Hooks, mesh: MeshAsync, form: LetterForm | None = None) -> None:
    """Deliver the events of all webhooks, those that are added meanwhile too, until it is cancelled."""
    shape = form or CloudEvents()
    running: dict[str, tuple[Hook, asyncio.Task[None]]] = {}
    try:
        while True:
            wanted = {name: hook for name in hooks.names() if (hook := hooks.get(name)).enabled}
            for name, (hook, task) in list(running.items()):
                if wanted.get(name) != hook or _has_failed(name, task):
                    await _stop(running.pop(name)[1])
            for name, hook in wanted.items():
                if name not in running:
                    running[name] = hook, asyncio.create_task(Delivery(hooks, hook, mesh, shape).run())
            await asyncio.sleep(_AGAIN_SECONDS)
    finally:
        for _, task in running.values():
            await _stop(task)


def _has_failed(name: str, task: asyncio.Task[None]) -> bool:
    """Return whether a delivery has failed, as with a full disk; it is begun again where it was."""
    if not task.done() or task.cancelled() or (error := task.exception()) is None:
        return False
    log.warning("the delivery of a webhook failed, and begins again", webhook=name, error=repr(error))
    return True


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _order(event_id: str) -> tuple[int, int]:
    moment, _, number = event_id.partition("-")
    return int(moment or 0), int(number or 0)
