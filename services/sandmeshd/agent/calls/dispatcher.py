"""Dispatches calls to tools: fencing, starting, running, finding and forgetting them. Each id runs once."""

from __future__ import annotations

import asyncio
import math
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallExpired, CallNotFound, InvalidArgument, LeaseLost, SandboxNotFound
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall, Timeouts
from sandmeshd.agent.calls.history import CallHistory
from sandmeshd.agent.calls.scarcity import scarcity
from sandmeshd.agent.calls.spill import Disk

if TYPE_CHECKING:
    from sandmeshd.agent.calls.toolbox import Added, Handler

_LOST: Final = "the fencing token is not the one in force: the lease ran out or passed to someone else"

_DEFECT: Final = "The tool failed inside the agent; see the sandbox's log."


@dataclass(frozen=True)
class AgentIdentity:
    """The agent's identity, and the token that a peer must show."""

    sandbox_id: str
    agent_token: str = field(repr=False)
    version: str
    kernel: str = ""


@dataclass(frozen=True)
class Retention:
    """How long, and how much, finished calls are kept."""

    seconds: float = 600.0
    calls: int = 1000
    bytes: int = 64 << 20
    expired_ids: int = 16_384


@dataclass(frozen=True)
class CallPolicy:
    """How long calls may run, and what is kept of calls without a reader."""

    retention: Retention = field(default_factory=Retention)
    timeouts: Timeouts = field(default_factory=Timeouts)
    disk: Disk | None = None
    """Where their output goes that does not fit into memory."""
    max_seconds: float | None = None
    """How long a call of a tool may run at most; None: as long as its caller allows."""


class Tools(Protocol):
    """A sandbox's tools, all or the first of them."""

    @property
    def added(self) -> Added | None:
        """Tools that come and go."""
        ...

    def prepare(self, name: str, arguments: bytes) -> tuple[Any, Handler]:
        """Return a tool's validated arguments and its handler."""
        ...

    def is_bounded(self, name: str) -> bool:
        """Return whether a template's bound on the time of calls applies to a tool."""
        ...

    def listing(self, group: str) -> pb.ListToolsResponse:
        """Describe the tools of a group, or all."""
        ...


class CallTable:
    """Running calls, finished ones while their logs are kept, and the ids of those before."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._loop = asyncio.get_running_loop()
        self.kept: dict[str, RunningCall] = {}
        """Those that run and those whose logs are kept, by id."""
        self._finished: OrderedDict[str, float] = OrderedDict()
        self._bytes = 0
        self.history = CallHistory()
        """The newest calls, also those whose logs are forgotten."""
        self._expired: OrderedDict[str, None] = OrderedDict()

    def find(self, call_id: str) -> RunningCall | None:
        """Return a call that runs or whose log is kept, None for an id that was never used.

        Raises:
            CallExpired: It finished and its log is no longer kept.
        """
        if call_id in self._expired or self._finished.get(call_id, math.inf) <= self._loop.time():
            raise CallExpired(
                f"call {call_id} finished and its events are no longer kept; it does not run again. Use a new call_id",
                {"call_id": call_id},
            )
        return self.kept.get(call_id)

    def get(self, call_id: str) -> RunningCall:
        """Return a call that exists.

        Raises:
            CallExpired: It finished and its log is no longer kept.
            CallNotFound: The id was never used here.
        """
        call = self.find(call_id)
        if call is None:
            raise CallNotFound(f"no call {call_id} was started in this sandbox", {"call_id": call_id})
        return call

    @property
    def untouched(self) -> bool:
        """Whether no call was ever started."""
        return not (self.kept or self._expired)

    def finish(self, call: RunningCall) -> None:
        """Record that a call has finished, and forget the logs of those that are kept no longer."""
        now = self._loop.time()
        self._finished[call.id] = now + self._retention.seconds
        self._bytes += call.log.used
        while self._finished:
            call_id = next(iter(self._finished))
            many = len(self._finished) > self._retention.calls or self._bytes > self._retention.bytes
            if not many and self._finished[call_id] > now:
                return
            del self._finished[call_id]
            forgotten = self.kept.pop(call_id)
            self._bytes -= forgotten.log.used
            forgotten.log.close()
            self._expired[call_id] = None
            if len(self._expired) > self._retention.expired_ids:
                self._expired.popitem(last=False)


class Dispatcher:
    """The calls of one sandbox, whichever link they arrive by."""

    def __init__(
        self, identity: AgentIdentity, fencing_token: int, tools: Callable[[], Tools], policy: CallPolicy | None = None
    ) -> None:
        self.identity = identity
        self._policy = policy or CallPolicy()
        self.calls = CallTable(self._policy.retention)
        self._tools = tools
        self._token = fencing_token
        self.record = b""
        """What the driver has the agent keep for it."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def separate(self, replace: Callable[[Tools], Tools]) -> Dispatcher:
        """Return a dispatcher with the same identity, separate calls, and what `replace` makes of the tools."""
        return Dispatcher(self.identity, 0, lambda: replace(self._tools()))

    def install_token(self, token: int, record: bytes = b"") -> None:
        """Put a fencing token in force, and keep the driver's record, unless it is empty.

        Raises:
            LeaseLost: A higher one is in force.
        """
        if token < self._token:
            raise LeaseLost(f"the fencing token {token} is older than the one in force")
        self._token = token
        self.record = record or self.record

    def check_token(self, token: int) -> None:
        """Check that a token is the one in force, which the holder of the lease has.

        Raises:
            LeaseLost: It is not.
        """
        if token != self._token:
            raise LeaseLost(_LOST)

    def check(self, sandbox_id: str, token: int | None = None) -> None:
        """Check that a request is for this sandbox and, but for a hello, that it has the token in force.

        Raises:
            SandboxNotFound: It is for another one, which had this address before.
            LeaseLost: The token is not the one in force.
        """
        if sandbox_id != self.identity.sandbox_id:
            raise SandboxNotFound(f"sandbox {sandbox_id} is not here", {"sandbox_id": sandbox_id})
        if token is not None and token != self._token:
            raise LeaseLost(_LOST)

    def list_tools(self, group: str, respond: Callable[[bytes], None]) -> None:
        """Call `respond` with the serialized ListToolsResponse: immediately, or when MCP servers have started."""
        toolbox = self._tools()
        if toolbox.added is None or not toolbox.added.unsettled:
            respond(toolbox.listing(group).SerializeToString())
        else:
            task = self._loop.create_task(_respond_when_settled(toolbox, toolbox.added, group, respond))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def find_or_start(self, start: pb.CallStart, arguments: bytes) -> RunningCall:
        """Return the call of an id, started now if the id is new.

        Raises:
            CallExpired: The id was used and is forgotten.
            InvalidArgument: The id or the arguments are not valid.
            ToolNotFound: The tool does not exist.
        """
        call = self.calls.find(start.call_id)
        if call is not None:
            return call
        if not 1 <= len(start.call_id) <= 128:
            raise InvalidArgument("call_id must have 1 to 128 characters")
        seconds = start.timeout.ToNanoseconds() / 1e9 if start.HasField("timeout") else None
        if seconds is not None and seconds <= 0:
            raise InvalidArgument("timeout must be greater than 0")
        tools = self._tools()
        declared, handler = tools.prepare(start.tool, arguments)
        limit = self._policy.max_seconds
        if limit is not None and tools.is_bounded(start.tool):
            seconds = limit if seconds is None else min(seconds, limit)
        call = self.calls.kept[start.call_id] = RunningCall(start, self._policy.timeouts, self._policy.disk)
        call.past = self.calls.history.begin(start.tool)
        task = self._loop.create_task(self._run(call, declared, handler, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return call

    async def _run(self, call: RunningCall, declared: Any, handler: Handler, seconds: float | None) -> None:
        call.stop_after(seconds)
        try:
            outcome = await handler(declared, call)
        except ToolFailure as failure:
            outcome = await _failed(call, str(failure))
        except Exception as error:
            lack = scarcity(error.errno) if isinstance(error, OSError) else ""
            if not lack:
                traceback.print_exc(file=sys.stderr)
            message = f"The sandbox has run out: {lack}." if lack else _DEFECT
            outcome = await _failed(call, message)
        if call.past is not None:
            call.past.finish(outcome.reason, is_error=outcome.is_error)
        call.finish(outcome)
        self.calls.finish(call)

    async def close(self) -> None:
        """Cancel what runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _respond_when_settled(toolbox: Tools, added: Added, group: str, respond: Callable[[bytes], None]) -> None:
    await added.settled()
    respond(toolbox.listing(group).SerializeToString())


async def _failed(call: RunningCall, message: str) -> Outcome:
    await call.text(message)
    return Outcome(is_error=True, message=message, reason=call.stop_reason or pb.END_REASON_EXITED)
