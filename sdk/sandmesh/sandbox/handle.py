"""The part that every async box is made of: its configuration and its attachment to a sandbox."""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandmesh._calls.call import Order, write_arguments
from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_state, write_ttl
from sandmesh._tools import Tool, dump
from sandmesh._tools.declaration import fork_lock
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandboxLost, SandmeshError, WrongState
from sandmesh.replies import REPLY_CHARACTERS
from sandmesh.sandbox.session.lease import Lifetimes, SessionLease

if TYPE_CHECKING:
    from sandmesh.sandbox.images.image import Image

# The most bytes of a collected result; `stream` has no such limit.
OUTPUT_LIMIT = 64 * 1024 * 1024

_USABLE = ("READY", "PAUSED")


@dataclass(frozen=True)
class BoxConfig:
    """The configuration of a box, from its constructor."""

    sandbox_id: str | None
    timeout: float
    base_url: str | None
    bearer_token: str | None
    # Values of secrets are in it until they are sealed.
    spec: sandbox_pb2.SandboxSpec = field(repr=False)
    lifetimes: Lifetimes
    ca_cert: str | Path | None
    batch: sandbox_pb2.Batch | None = None
    reply_characters: int = REPLY_CHARACTERS
    # Is built before the sandbox is created; the spec names none then.
    image: Image | None = None
    trace_processes: bool = False


@dataclass
class Attachment:
    """An open box's attachment to its sandbox; `owned` is the session that it created and will end."""

    connection: Connection
    record: sandbox_pb2.Sandbox
    owned: SessionLease | None
    pid: int
    trace_processes: bool = False

    def usable(self) -> Connection:
        """Return the connection.

        Raises:
            WrongState: The caller is in another event loop than the box was opened in.
        """
        if asyncio.get_running_loop() is not self.connection.loop:
            message = "this box was opened in another event loop: open, use and close it in one"
            raise WrongState(message, {"state": "FOREIGN_LOOP"})
        return self.connection

    def order(self, declared: Tool, timeout: float) -> Order:
        """Build the order of a tool call for the sandbox; with a timeout of 0, without a limit."""
        return Order(
            sandbox_id=self.record.sandbox_id,
            fencing_token=self.record.lease.fencing_token,
            tool=declared.name,
            arguments=write_arguments(declared.name, dump(declared)),
            timeout=timeout,
            traces_processes=self.trace_processes,
        )

    async def close(self, timeout: float) -> None:
        """Detach: an owned session ends, any other sandbox stays as it is."""
        if self.pid != os.getpid():
            return
        self.usable()
        try:
            if self.owned is not None:
                await self.owned.release(timeout)
        finally:
            await release(self.connection)


class SandboxHandle:
    """A handle on a sandbox: it attaches when it is started, and detaches when it is closed."""

    def __init__(self, sandbox_type: str, config: BoxConfig) -> None:
        self._type = sandbox_type
        self._config = config
        self._attachment: Attachment | None = None
        self._closed = False

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id.

        Raises:
            WrongState: The box was not started, so there is no sandbox yet.
        """
        if self._config.sandbox_id is not None:
            return self._config.sandbox_id
        attachment = self._attachment or self._attached()
        return attachment.record.sandbox_id

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type; for a box that attaches by id, the sandbox's template once the box is open."""
        if self._config.sandbox_id is not None and self._attachment is not None:
            return self._attachment.record.spec.template
        return self._type

    def __repr__(self) -> str:
        """Return the class, the sandbox and whether the box is open; neither address nor token."""
        attachment = self._attachment
        record = "not open" if attachment is None else attachment.record.sandbox_id
        return f"<{type(self).__name__} {self.sandbox_type} {record}>"

    def _repr_html_(self) -> str:
        with fork_lock:
            from sandmesh.results import pre  # noqa: PLC0415 - most programs show no box

        return pre(repr(self))

    @property
    def is_open(self) -> bool:
        """Whether it was started and not closed."""
        return self._attachment is not None

    async def start(self) -> Self:
        """Create the sandbox or attach to it; starting an open box changes nothing.

        Raises:
            WrongState: The box was closed.
            SandmeshError: The sandbox could not be provided; nothing is left behind.
        """
        if self._closed:
            raise WrongState("this box was closed: make a new one", {"state": "CLOSED"})
        if self._attachment is None:
            with fork_lock:  # Calls need it, and the first one is not to wait for it.
                import_module("sandmesh._tools.validation")
            self._attachment = await self._attach()
        return self

    async def _attach(self) -> Attachment:
        return await attach(self._config)

    async def close(self) -> None:
        """Release the sandbox if this box created it; closing twice changes nothing."""
        self._closed = True
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            await attachment.close(self._config.timeout)

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Close."""
        await self.close()

    def _attached(self) -> Attachment:
        attachment = self._attachment
        if attachment is None:
            state = "CLOSED" if self._closed else "NEW"
            detail = (
                "was closed: make a new one" if self._closed else "was not started: enter it by `with`, or start() it"
            )
            raise WrongState(f"this box {detail}", {"state": state})
        if attachment.pid != os.getpid():
            sandbox_id = attachment.record.sandbox_id
            message = f"this box was opened before a fork: attach from here by sandbox_id={sandbox_id!r} and base_url="
            raise WrongState(message, {"state": "FORKED", "sandbox_id": sandbox_id})
        return attachment


async def attach(config: BoxConfig) -> Attachment:
    """Attach to the sandbox of the configured id, or create one.

    Raises:
        SandmeshError: There is no mesh, no such sandbox, or none could be created; nothing is left behind.
    """
    connection = await acquire(config.base_url, config.bearer_token, config.timeout, config.ca_cert)
    try:
        if config.sandbox_id is not None:
            record = await get_record(connection, config.sandbox_id, config.timeout)
            _check_usable(record)
            return Attachment(connection, record, None, os.getpid(), config.trace_processes)
        return await _create(connection, config)
    except BaseException:
        await release(connection)
        raise


async def renew(attachment: Attachment, ttl: float | None, timeout: float) -> None:
    """Renew a sandbox's lease."""
    if ttl is not None and attachment.owned is not None:
        attachment.owned.renew_by(ttl)
    record = attachment.record
    request = sandbox_pb2.RenewLeaseRequest(
        sandbox_id=record.sandbox_id, fencing_token=record.lease.fencing_token, ttl=write_ttl(ttl)
    )
    response = await attachment.usable().ask(lambda stubs: stubs.sandboxes.RenewLease, request, timeout)
    record.lease.CopyFrom(response.lease)


async def get_record(connection: Connection, sandbox_id: str, timeout: float) -> sandbox_pb2.Sandbox:
    """Fetch a sandbox's record."""
    request = sandbox_pb2.GetSandboxRequest(sandbox_id=sandbox_id)
    response = await connection.ask(lambda stubs: stubs.sandboxes.GetSandbox, request, timeout)
    return response.sandbox


def _check_usable(record: sandbox_pb2.Sandbox) -> None:
    state = read_state(record)
    if state not in _USABLE:
        detail = record.state_reason or state
        raise SandboxLost(f"sandbox {record.sandbox_id} is {state}: get a new one", {"detail": detail, "state": state})


async def _create(connection: Connection, config: BoxConfig) -> Attachment:
    # Ids chosen here make the request safe to repeat, and to undo if its response never arrives.
    session = SessionLease(connection, f"anonymous-{uuid.uuid4().hex}", uuid.uuid4().hex, config.lifetimes)
    try:
        slot = session_pb2.SlotSpec(spec=await _spec(connection, config), batch=config.batch)
        connected = await session.connect([slot], config.timeout)
        (record,) = connected.session.sandboxes.values()
    except asyncio.CancelledError:
        await asyncio.shield(_undo(session))
        raise
    return Attachment(connection, record, session, os.getpid(), config.trace_processes)


async def _spec(connection: Connection, config: BoxConfig) -> sandbox_pb2.SandboxSpec:
    """Return what the sandbox is to be; an image that this program describes is built first."""
    if config.image is None:
        return config.spec
    from sandmesh.sandbox.images.builds import build_on  # noqa: PLC0415 - few programs describe images

    spec = sandbox_pb2.SandboxSpec()
    spec.CopyFrom(config.spec)
    spec.image = (await build_on(connection, config.image, config.timeout)).reference
    return spec


async def _undo(session: SessionLease) -> None:
    with suppress(SandmeshError):
        await session.release(2.0)
