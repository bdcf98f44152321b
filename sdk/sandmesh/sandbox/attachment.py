"""How an open box is tied to its sandbox: a connection, the record, and the session if the box owns it."""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandmesh._calls.call import Order
from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_state, write_arguments, write_ttl
from sandmesh._tools import Tool, dump
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandboxLost, SandmeshError, WrongState
from sandmesh.sandbox.held_session import HeldSession, Times

_USABLE = ("READY", "PAUSED")


@dataclass(frozen=True)
class Wanted:
    """What a box was told when it was made."""

    sandbox_id: str | None
    timeout: float
    base_url: str | None
    bearer_token: str | None
    spec: sandbox_pb2.SandboxSpec
    times: Times
    ca_cert: str | Path | None


@dataclass
class Attachment:
    """An open box's tie to its sandbox; `owned` is the session that it made and ends."""

    connection: Connection
    record: sandbox_pb2.Sandbox
    owned: HeldSession | None
    pid: int

    def usable(self) -> Connection:
        """Give the connection to whoever runs in its loop.

        Raises:
            WrongState: The caller is in another event loop than the box was opened in.
        """
        if asyncio.get_running_loop() is not self.connection.loop:
            message = "this box was opened in another event loop: open, use and close it in one"
            raise WrongState(message, {"state": "FOREIGN_LOOP"})
        return self.connection

    def order(self, declared: Tool, timeout: float) -> Order:
        """Make an order of a tool for the sandbox; 0 seconds are no limit."""
        return Order(
            sandbox_id=self.record.sandbox_id,
            fencing_token=self.record.lease.fencing_token,
            tool=declared.name,
            arguments=write_arguments(declared.name, dump(declared)),
            timeout=timeout,
        )

    async def close(self, timeout: float) -> None:
        """Let go: an owned session ends, another's sandbox stays as it is."""
        if self.pid != os.getpid():
            return
        self.usable()
        try:
            if self.owned is not None:
                await self.owned.release(timeout)
        finally:
            await release(self.connection)


async def attach(wanted: Wanted) -> Attachment:
    """Find the sandbox that is named, or make one.

    Raises:
        SandmeshError: There is no mesh, no such sandbox, or none could be made; nothing is left behind.
    """
    connection = await acquire(wanted.base_url, wanted.bearer_token, wanted.timeout, wanted.ca_cert)
    try:
        if wanted.sandbox_id is not None:
            record = await get_record(connection, wanted.sandbox_id, wanted.timeout)
            _check_usable(record)
            return Attachment(connection, record, None, os.getpid())
        return await _make(connection, wanted)
    except BaseException:
        await release(connection)
        raise


async def renew(attachment: Attachment, ttl: float | None, timeout: float) -> None:
    """Move the end of a sandbox's lease."""
    if ttl is not None and attachment.owned is not None:
        attachment.owned.renew_by(ttl)
    record = attachment.record
    request = sandbox_pb2.RenewLeaseRequest(
        sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token, ttl=write_ttl(ttl)
    )
    answer = await attachment.usable().ask(lambda stubs: stubs.sandboxes.RenewLease, request, timeout)
    record.lease.CopyFrom(answer.lease)


async def get_record(connection: Connection, sandbox_id: str, timeout: float) -> sandbox_pb2.Sandbox:
    """Read a sandbox's record."""
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id)
    answer = await connection.ask(lambda stubs: stubs.sandboxes.GetSandbox, request, timeout)
    return answer.sandbox


def _check_usable(record: sandbox_pb2.Sandbox) -> None:
    state = read_state(record)
    if state not in _USABLE:
        detail = record.state_reason or state
        raise SandboxLost(f"sandbox {record.sandbox_id} is {state}: get a new one", {"detail": detail, "state": state})


async def _make(connection: Connection, wanted: Wanted) -> Attachment:
    # Ids of its own make the request one that may be sent twice, and undone if its answer never came.
    session = HeldSession(connection, f"anonymous-{uuid.uuid4().hex}", uuid.uuid4().hex, wanted.times)
    try:
        found = await session.connect([session_pb2.SlotSpec(spec=wanted.spec)], wanted.timeout)
        (record,) = found.sandboxes.values()
    except asyncio.CancelledError:
        await asyncio.shield(_undo(session))
        raise
    return Attachment(connection, record, session, os.getpid())


async def _undo(session: HeldSession) -> None:
    with suppress(SandmeshError):
        await session.release(2.0)
