"""The audit of one gateway: to a file and syslog immediately, and to the store in the background."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmesh.api.audit.v1 import audit_pb2_grpc
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import (
    InvalidArgument,
    PermissionDenied,
    RuntimeUnavailable,
    SandboxNotFound,
    SandmeshError,
    SnapshotNotFound,
    TokenNotFound,
    Unauthenticated,
)
from sandmesh.shared.wire_errors import from_rpc_error
from sandmeshd.auth.principal import Principal, current_principal
from sandmeshd.gateway.audit.entries import describe, is_recorded, make_entry, parsed
from sandmeshd.gateway.audit.sink import AuditSink
from sandmeshd.gateway.audit.system_log import AuditSyslog
from sandmeshd.gateway.settings import GatewaySettings


class AuditFile(AuditSink):
    """Append a line for each entry.

    The file is opened for each write, so that one that was rotated away is followed by a new one.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"the audit file {path}")
        self._path = path
        self._torn = False

    def _encode(self, entry: pb.AuditEntry) -> bytes:
        fields = MessageToDict(entry, preserving_proto_field_name=True)
        # In ASCII: readers take other signs for ends of lines, too, such as U+2028.
        return json.dumps(fields).encode() + b"\n"

    def _write(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while self._waiting:
                line = b"\n" + self._waiting[0] if self._torn else self._waiting[0]
                written = os.write(descriptor, line)
                self._torn = written < len(line) and (self._torn or written > 0)
                if written < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._waiting.popleft()
        finally:
            os.close(descriptor)


log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Awaitable[Any]]

_BATCH, _WAITING = 100, 10_000
_SEND_SECONDS, _PAUSE_SECONDS = 5.0, 1.0
_REST_SECONDS = 0.02
"""How long an entry waits for others before it is sent to the store: its caller's next call goes first."""
REFUSALS_PER_SECOND = 100
"""How many refused attempts are recorded: clients without a token must not fill a disk."""

_CALLS = call_pb2.DESCRIPTOR.services_by_name["CallService"]
_PROBES = frozenset({SandboxNotFound.reason, PermissionDenied.reason, SnapshotNotFound.reason, TokenNotFound.reason})
"""How RPCs end that name what is another's."""


@dataclass
class _Record:
    """How an RPC ended, which becomes an entry when somebody reads it, not while its caller waits."""

    path: str
    principal: Principal | None
    peer: str
    outcome: str
    nanoseconds: int
    method: MethodDescriptor | None = None
    request: Any = None
    response: Any = None
    _entry: pb.AuditEntry | None = None

    def entry(self) -> pb.AuditEntry:
        """Return the whole entry."""
        if self._entry is None:
            self._entry = make_entry(self.path, self.principal, self.peer, self.outcome)
            self._entry.time.FromNanoseconds(self.nanoseconds)
            if self.method is not None:
                request = parsed(self.method.input_type, self.request)
                describe(self._entry, request, parsed(self.method.output_type, self.response))
            self.request = self.response = None
        return self._entry


class AuditTrail:
    """Record what changes something and what is refused."""

    def __init__(self, settings: GatewaySettings, stub: audit_pb2_grpc.AuditServiceAsyncStub) -> None:
        self._sinks: list[AuditSink] = [
            *([AuditFile(settings.audit_file)] if settings.audit_file else []),
            *([AuditSyslog(settings.audit_syslog)] if settings.audit_syslog else []),
        ]
        self._refuses = settings.audit_on_failure == "refuse"
        self._stub = stub
        self._waiting: deque[_Record] = deque(maxlen=_WAITING)
        self._woken = asyncio.Event()
        self._second, self._refused = 0, 0

    def open(self) -> None:
        """Check that the file and syslog can be written.

        Raises:
            InvalidArgument: One cannot be, and the settings refuse changes then.
        """
        for sink in self._sinks:
            if not sink.flush() and self._refuses:
                fix = "make it writable, or set audit_on_failure (SANDMESH_AUDIT_ON_FAILURE) to continue"
                message = f"{sink.name} cannot be written ({sink.trouble}): {fix}"
                raise InvalidArgument(message, {"sink": sink.name, "fix": fix})

    def recorded(self, method: MethodDescriptor, behaviour: Behaviour) -> Behaviour:
        """Return the behaviour of a method that records how it ended, or what it refused where it changes nothing."""
        if not is_recorded(method):
            return self._watched(method, behaviour)
        path = f"/{method.containing_service.full_name}/{method.name}"

        async def run(request: Any, context: Context) -> Any:
            self._check()
            response, outcome = None, "OK"
            try:
                response = await behaviour(request, context)
            except BaseException as error:
                outcome = _outcome(error)
                raise
            finally:
                moment = time.time_ns()
                self._record(
                    _Record(path, current_principal(), context.peer(), outcome, moment, method, request, response)
                )
            return response

        return run

    def _watched(self, method: MethodDescriptor, behaviour: Behaviour) -> Behaviour:
        """Return a behaviour that records attempts at what is another's, or was never there."""
        path = f"/{method.containing_service.full_name}/{method.name}"

        async def run(request: Any, context: Context) -> Any:
            try:
                return await behaviour(request, context)
            except (grpc.aio.AioRpcError, SandmeshError) as error:
                outcome = _outcome(error)
                if outcome in _PROBES and self._within_rate():
                    self._record(
                        _Record(
                            path, current_principal(), context.peer(), outcome, time.time_ns(), method, request, None
                        )
                    )
                raise

        return run

    def probed(self, principal: Principal, sandbox_id: str) -> None:
        """Record that a call named a sandbox that is another's."""
        if self._within_rate():
            method, request = _CALLS.methods_by_name["RunCall"], call_pb2.CallStart(sandbox_id=sandbox_id)
            path = f"/{_CALLS.full_name}/{method.name}"
            self._record(_Record(path, principal, "", SandboxNotFound.reason, time.time_ns(), method, request))

    def refused_by_door(self, sandbox_id: str, peer: str) -> None:
        """Record that a request to a door for a sandbox did not show that sandbox's own token."""
        if self._within_rate():
            method, request = _CALLS.methods_by_name["RunCall"], call_pb2.CallStart(sandbox_id=sandbox_id)
            self._record(_Record("/Door/Access", None, peer, Unauthenticated.reason, time.time_ns(), method, request))

    def refused(self, path: str, peer: str, principal: Principal | None, error: SandmeshError) -> None:
        """Record an attempt that was refused at the door."""
        if self._within_rate():
            self._record(_Record(path, principal, peer, error.reason, time.time_ns()))

    def _within_rate(self) -> bool:
        second = int(time.monotonic())
        self._refused = self._refused + 1 if second == self._second else 1
        self._second = second
        if self._refused == REFUSALS_PER_SECOND + 1:
            log.warning("refused attempts beyond the audit's rate are not recorded", rate=REFUSALS_PER_SECOND)
        return self._refused <= REFUSALS_PER_SECOND

    async def send_forever(self) -> None:
        """Send entries to the store until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(_REST_SECONDS)
            if not await self.send():
                await asyncio.sleep(_PAUSE_SECONDS)
                self._woken.set()

    async def send(self) -> bool:
        """Send what waits; return whether the store has it."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            try:
                entries = [record.entry() for record in batch]
                await self._stub.RecordAudit(pb.RecordAuditRequest(entries=entries), timeout=_SEND_SECONDS)
            except (grpc.aio.AioRpcError, SandmeshError) as error:
                log.warning("entries of the audit wait for the store", count=len(batch), error=str(error))
                self._waiting.extendleft(reversed(batch))
                return False
            except asyncio.CancelledError:
                self._waiting.extendleft(reversed(batch))
                raise
        return True

    def _record(self, record: _Record) -> None:
        for sink in self._sinks:
            sink.append(record.entry())
        self._waiting.append(record)
        self._woken.set()

    def _check(self) -> None:
        for sink in self._sinks:
            if self._refuses and sink.trouble and not sink.flush():
                fix = f"make {sink.name} writable"
                message = f"the audit cannot be written ({sink.trouble}), and nothing is changed without it: {fix}"
                raise RuntimeUnavailable(message, {"fix": fix})

    def close(self) -> None:
        """Release the file and the connection to syslog."""
        for sink in self._sinks:
            sink.close()


@asynccontextmanager
async def open_trail(
    settings: GatewaySettings, stub: audit_pb2_grpc.AuditServiceAsyncStub
) -> AsyncGenerator[AuditTrail]:
    """Record until the block ends; what is recorded by then is sent.

    Raises:
        InvalidArgument: The audit file or syslog cannot be written, and the settings refuse changes then.
    """
    trail = AuditTrail(settings, stub)
    trail.open()
    task = asyncio.create_task(trail.send_forever())
    try:
        yield trail
    finally:
        task.cancel()
        await asyncio.wait([task])
        await trail.send()
        trail.close()


def _outcome(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error).reason
    if isinstance(error, SandmeshError):
        return error.reason
    return "INTERNAL" if isinstance(error, Exception) else "CANCELLED"
