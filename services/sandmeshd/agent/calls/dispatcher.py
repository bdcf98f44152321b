"""What an agent does with callers' frames: fencing, starting, running and finding calls."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, LeaseLost, SandboxNotFound
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call, Outcome, Patience
from sandmeshd.agent.calls.call_table import Calls, Keeping
from sandmeshd.agent.calls.spill import Disk

if TYPE_CHECKING:
    from sandmeshd.agent.calls.toolbox import Added, Handler


@dataclass(frozen=True)
class Identity:
    """Who the agent is, and what proves that a peer may speak to it."""

    sandbox_id: str
    agent_token: str = field(repr=False)
    version: str


@dataclass(frozen=True)
class Held:
    """What is held of calls that nobody reads: for how long, how much, and where."""

    keeping: Keeping = field(default_factory=Keeping)
    patience: Patience = field(default_factory=Patience)
    disk: Disk | None = None
    seconds: float | None = None
    """How long a call of a tool may run, whatever its caller says; None: as the caller says."""


class Tools(Protocol):
    """A sandbox's tools, all or the first of them."""

    @property
    def added(self) -> Added | None:
        """Tools that come and go."""
        ...

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Give a tool's checked arguments and its handler."""
        ...

    def is_bounded(self, name: str) -> bool:
        """Say whether a template's bound on the time of calls is for this."""
        ...

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all."""
        ...


class Engine:
    """The calls of one sandbox, whichever link they came by."""

    def __init__(
        self, identity: Identity, fencing_token: int, tools: Callable[[], Tools], held: Held | None = None
    ) -> None:
        self.identity = identity
        held = held or Held()
        self.calls = Calls(held.keeping)
        self._tools = tools
        self._patience = held.patience
        self._disk = held.disk
        self._seconds = held.seconds
        self._token = fencing_token
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def apart(self, replace: Callable[[Tools], Tools]) -> Engine:
        """Give an engine with the same identity and what is given in place of its tools, whose calls are its own."""
        return Engine(self.identity, 0, lambda: replace(self._tools()))

    def install_token(self, token: int) -> None:
        """Put a fencing token in force.

        Raises:
            LeaseLost: A higher one is in force.
        """
        if token < self._token:
            raise LeaseLost(f"the fencing token {token} is older than the one in force")
        self._token = token

    def check_token(self, token: int) -> None:
        """Let the holder of the lease pass.

        Raises:
            LeaseLost: The token is not the one in force.
        """
        if token != self._token:
            raise LeaseLost("the fencing token is not the one in force: the lease ran out or passed to someone else")

    def check_sandbox(self, sandbox_id: str) -> None:
        """Let through what is meant for this sandbox.

        Raises:
            SandboxNotFound: It is meant for another one, which had this address before.
        """
        if sandbox_id != self.identity.sandbox_id:
            raise SandboxNotFound(f"sandbox {sandbox_id} is not here", {"sandbox_id": sandbox_id})

    def find_or_start(self, start: pb.CallStart, arguments: bytes) -> Call:
        """Give the call of an id, started now if the id is new.

        Raises:
            CallExpired: The id was used and is forgotten.
            InvalidArgument: The id or the arguments are not valid.
            ToolNotFound: There is no such tool.
        """
        call = self.calls.find(start.call_id)
        if call is None:
            call = self._start(start, arguments)
        return call

    def tools(self, group: str, answer: Callable[[bytes], None]) -> None:
        """Have `answer` called with the serialized ListToolsResponse: at once, or when MCP servers have started."""
        toolbox = self._tools()
        if toolbox.added is None or not toolbox.added.unsettled:
            answer(toolbox.listing(group).SerializeToString())
        else:
            self._keep(self._loop.create_task(_settled(toolbox, toolbox.added, group, answer)))

    def _start(self, start: pb.CallStart, arguments: bytes) -> Call:
        if not 1 <= len(start.call_id) <= 128:
            raise InvalidArgument("call_id has 1 to 128 characters")
        seconds = start.timeout.ToNanoseconds() / 1e9 if start.HasField("timeout") else None
        if seconds is not None and seconds <= 0:
            raise InvalidArgument("timeout is above 0")
        tools = self._tools()
        declared, handler = tools.prepare(start.tool, arguments)
        if self._seconds is not None and tools.is_bounded(start.tool):
            seconds = self._seconds if seconds is None else min(seconds, self._seconds)
        call = Call(start, self._patience, self._disk)
        self.calls.add(call)
        self._keep(self._loop.create_task(self._run(call, declared, handler, seconds)))
        return call

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, call: Call, declared: Any, handler: Handler, seconds: float | None) -> None:
        alarm = None if seconds is None else self._loop.call_later(seconds, call.stop, pb.END_REASON_TIMED_OUT)
        try:
            outcome = await handler(declared, call)
        except ToolFailure as failure:
            outcome = await _failed(call, str(failure))
        except Exception:
            traceback.print_exc(file=sys.stderr)
            outcome = await _failed(call, "The tool failed inside the agent; the sandbox's log says how.")
        if alarm is not None:
            alarm.cancel()
        call.finish(outcome)
        self.calls.finish(call)

    async def close(self) -> None:
        """Stop what runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _settled(toolbox: Tools, added: Added, group: str, answer: Callable[[bytes], None]) -> None:
    await added.settled()
    answer(toolbox.listing(group).SerializeToString())


async def _failed(call: Call, message: str) -> Outcome:
    await call.text(message)
    return Outcome(is_error=True, message=message, reason=call.stop_reason or pb.END_REASON_EXITED)
