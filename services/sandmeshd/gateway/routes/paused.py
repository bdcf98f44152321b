"""The sandboxes that are paused, as far as a gateway knows, and how requests resume them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import SandboxNotFound, SandmeshError, WrongState
from sandmesh.shared.traces.context import step_of
from sandmesh.shared.wire_errors import translated
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.auth.principal import SERVICE, acting_for

log = structlog.get_logger()

_PAUSED: Final = "PAUSED"
_BUSY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""How long a resume waits, each time, for a pause that is in progress."""
_WATCH_AGAIN_SECONDS: Final = 5.0

T = TypeVar("T")

Resolve = Callable[[str], Awaitable[object]]
Owns = Callable[[sandbox_pb2.Sandbox], bool]
FindLink = Callable[[str], AgentLink | None]


class PausedSandboxes:
    """Learn of pauses from the allocator and by the requests that pass, and resume sandboxes for requests.

    However many requests wait for a sandbox, it is looked up and resumed once.
    """

    def __init__(
        self, sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub, timeout: float, resolve: Resolve, find_link: FindLink
    ) -> None:
        self._sandboxes = sandboxes
        self._timeout = timeout
        self._resolve = resolve
        self._find_link = find_link
        self.ids: set[str] = set()
        """Those that are known to be paused."""
        self._checking: asyncio.Task[None] | None = None
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._lookups: dict[str, asyncio.Task[sandbox_pb2.Sandbox]] = {}
        self._resumes: dict[str, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()

    def note_paused(self, response: bytes) -> None:
        """Take a serialized PauseSandboxResponse."""
        self._note(sandbox_pb2.PauseSandboxResponse.FromString(response).sandbox.sandbox_id)

    def note_resumed(self, response: bytes) -> None:
        """Take a serialized ResumeSandboxResponse."""
        self.ids.discard(sandbox_pb2.ResumeSandboxResponse.FromString(response).sandbox.sandbox_id)

    def forget(self, sandbox_id: str) -> None:
        """Forget a sandbox whose link closed."""
        self.ids.discard(sandbox_id)

    def excuses(self, link: AgentLink) -> bool:
        """Return whether a silent agent is known to be paused, and ask for the next time.

        It may have been paused, or resumed, by way of another gateway.
        """
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._learn(link.sandbox_id))
        return link.sandbox_id in self.ids

    async def check(self, sandbox_id: str) -> None:
        """Check that a sandbox is not paused any more.

        Raises:
            WrongState: It is.
            SandboxNotFound, SandboxLost: It is gone.
        """
        await _share(self._checks, sandbox_id, partial(self._check, sandbox_id))

    async def _check(self, sandbox_id: str) -> None:
        await self._resolve(sandbox_id)
        self.ids.discard(sandbox_id)

    async def resume(self, sandbox_id: str, owns: Owns) -> None:
        """Resume a paused sandbox for a request of one who `owns` it.

        Raises:
            SandboxNotFound: There is none, or it is another's.
            WrongState: Requests do not resume it.
        """
        sandbox = await _share(self._lookups, sandbox_id, partial(self._look_up, sandbox_id))
        if not owns(sandbox):
            raise SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        if not sandbox.auto_resume:
            message = f"sandbox {sandbox_id} is paused: resume it (box.resume(), ResumeSandbox), then call again"
            raise WrongState(message, {"state": _PAUSED})
        await _share(self._resumes, sandbox_id, partial(self._resume, sandbox))

    def resume_soon(self, sandbox_id: str) -> None:
        """Resume a sandbox, if it is known to be paused, for a frame that was sent to it on an open channel."""
        if sandbox_id in self.ids and sandbox_id not in self._resumes:
            task = asyncio.create_task(self._resume_quietly(sandbox_id))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def watch(self) -> None:
        """Learn of the pauses of all gateways and allocators, until cancelled."""
        while True:
            try:
                with acting_for(SERVICE), translated():
                    async for paused in self._sandboxes.WatchPauses(sandbox_pb2.WatchPausesRequest()):
                        for sandbox_id in paused.sandbox_ids:
                            self._note(sandbox_id)
            except SandmeshError as error:
                log.debug("pauses are not watched just now", error=error.message)
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)

    def _note(self, sandbox_id: str) -> None:
        """Note a pause; a request that went to the agent while it was paused resumes it."""
        link = self._find_link(sandbox_id)
        if link is None:
            return
        self.ids.add(sandbox_id)
        if link.heartbeat.unanswered:
            self.resume_soon(sandbox_id)

    async def _look_up(self, sandbox_id: str) -> sandbox_pb2.Sandbox:
        request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id)
        with acting_for(SERVICE), translated():
            return (await self._sandboxes.GetSandbox(request, timeout=self._timeout)).sandbox

    async def _resume(self, sandbox: sandbox_pb2.Sandbox) -> None:
        request = sandbox_pb2.ResumeSandboxRequest(
            sandbox_id=sandbox.sandbox_id, fencing_token=sandbox.lease.fencing_token, on_request=True
        )
        with step_of("wake", {"sandmesh.sandbox_id": sandbox.sandbox_id}):
            await self._wake(request)
        self.ids.discard(sandbox.sandbox_id)

    async def _wake(self, request: sandbox_pb2.ResumeSandboxRequest) -> None:
        for pause in (*_BUSY_SECONDS, None):
            try:
                with acting_for(SERVICE), translated():
                    await self._sandboxes.ResumeSandbox(request, timeout=self._timeout)
                break
            except WrongState:
                # It is being paused just now, for one.
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _resume_quietly(self, sandbox_id: str) -> None:
        try:
            await self.resume(sandbox_id, lambda _: True)
        except SandmeshError as error:
            log.info("a paused sandbox was not resumed for a request", sandbox_id=sandbox_id, error=error.message)

    async def _learn(self, sandbox_id: str) -> None:
        try:
            await self.check(sandbox_id)
        except WrongState as error:
            if is_paused(error):
                self._note(sandbox_id)
        except SandmeshError as error:
            log.debug("it is not known why an agent is silent", sandbox_id=sandbox_id, error=error.message)
            self.ids.discard(sandbox_id)

    def close(self) -> None:
        """Ask for nothing more, and resume nothing more."""
        for task in [
            self._checking,
            *self._background,
            *self._checks.values(),
            *self._lookups.values(),
            *self._resumes.values(),
        ]:
            if task is not None:
                task.cancel()


async def _share(tasks: dict[str, asyncio.Task[T]], name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return the result of work that all who want it at the same time share."""
    task = tasks.get(name)
    if task is None:
        task = tasks[name] = asyncio.create_task(work())
        # Its failure is read here, too: all who waited may have left.
        task.add_done_callback(lambda done: (tasks.pop(name, None), done.cancelled() or done.exception()))
    return await asyncio.shield(task)


def is_paused(error: WrongState) -> bool:
    """Return whether a refusal is due to a pause."""
    return error.facts.get("state") == _PAUSED
