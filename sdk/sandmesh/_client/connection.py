"""Connections to meshes: one per address, token and event loop of a process, shared by all that use it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from sandmesh._calls.multiplexer import CallMux, CallStream
from sandmesh._client.addresses import DialTarget, configured, configured_token, new_call_seconds, parse_all, trusting
from sandmesh._client.channel import METHODS, make_metadata, may_repeat
from sandmesh._client.diagnosis import diagnose
from sandmesh._client.process_state import process
from sandmesh._client.transport import A, Choose, ChooseStream, Q, Transport
from sandmesh.errors import MeshUnavailable, SandmeshError, Unavailable
from sandmesh.shared.backoff import back_off
from sandmesh.shared.fork_lock import fork_lock
from sandmesh.shared.traces.context import span_of
from sandmesh.shared.wire_errors import from_rpc_error

# How long an address is tried that never answered, and one that did: a service that restarts is back in seconds.
NEVER_SECONDS = 2.0
AGAIN_SECONDS = 30.0


@dataclass
class RegisteredTemplates:
    """The templates that were registered with a mesh over a connection."""

    known: dict[str, Any] = field(default_factory=dict[str, Any])
    """Definitions that the mesh has, or refused, by name."""
    refused: set[str] = field(default_factory=set[str])
    """Those that it refused: its templates are not this program's to change."""


class Connection:
    """One transport to a mesh and the stream that carries this loop's calls over it.

    Of several gateways one is used until it does not answer, then the next.
    """

    def __init__(self, key: tuple[object, ...], targets: Sequence[DialTarget], bearer_token: str | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.key = key
        self.templates = RegisteredTemplates()
        self._targets = deque(targets)
        self._metadata = make_metadata(bearer_token)
        self._answered = False
        self._closed = False
        self._usable = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()
        self.mux = CallMux(", ".join(target.address for target in targets), new_call_seconds())
        self.resume()

    async def ask(self, choose: Choose[Q, A], request: Q, timeout: float) -> A:
        """Send a unary RPC, and retry it with growing pauses where that is safe and the failure may pass.

        Raises:
            SandmeshError: What the mesh answered.
            MeshUnavailable: Nothing answers at the address.
        """
        with span_of(METHODS[request.DESCRIPTOR.full_name].path[1:], "CLIENT"):
            return await self._ask(choose, request, timeout)

    async def _ask(self, choose: Choose[Q, A], request: Q, timeout: float) -> A:
        ends = time.monotonic() + timeout
        gives_up = time.monotonic() + min(timeout, AGAIN_SECONDS if self._answered else NEVER_SECONDS)
        for pause in back_off():
            try:
                return await self._ask_once(choose, request, ends)
            except SandmeshError as error:
                wait = max(pause, error.retry_after or 0.0)
                limit = gives_up if isinstance(error, MeshUnavailable) else ends
                over = self._closed or time.monotonic() + wait > limit
                if over or not may_repeat(request.DESCRIPTOR.full_name, error):
                    raise await self._explained(error) from None
            await asyncio.sleep(wait)
        raise MeshUnavailable("no mesh answers")  # the pauses never end

    @property
    def carries(self) -> bool:
        """Whether its transport is open."""
        return self._usable.is_set()

    async def open_bulk(self, busy: Callable[[], bool]) -> CallStream:
        """Open a stream as that of all calls, for one call of much data that must not delay the others.

        `busy` returns whether a response is awaited now.

        Raises:
            MeshUnavailable: The connection was closed.
        """
        if self._closed:
            raise _closed()
        await self._usable.wait()
        return await self._transport.open_bulk_stream(busy, self._renew)

    def follow(self, choose: ChooseStream[Q, A], request: Q) -> AsyncIterable[A]:
        """Send an RPC that is answered by a stream, and return its responses.

        It is sent once: a subscriber knows after what to continue.
        """
        return self._transport.follow(choose, request)

    async def close(self) -> None:
        """Close the transport for good."""
        self._closed = True
        await self.suspend()
        self.mux.fail_all(_closed())

    async def suspend(self) -> None:
        """Close the transport; what waits for a response waits for `resume`."""
        if not self._usable.is_set():
            return
        self._usable.clear()
        await self._transport.close_socket()
        await self.mux.suspend()
        await asyncio.gather(self._transport.close_channel(), *self._retiring)
        del self._transport

    def resume(self) -> None:
        """Open the transport; running calls are attached to again."""
        if self._closed:
            return
        self._transport = Transport(self._targets[0], self._metadata)
        self.mux.resume(self._open_stream)
        self._usable.set()

    def _replace(self) -> None:
        """Use the next gateway, or the same by a new channel where there is no other."""
        task = asyncio.create_task(self._transport.close_channel(1.0), name="sandmesh-old-channel")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        self._transport.retire()
        self._targets.rotate(-1)
        self._transport = Transport(self._targets[0], self._metadata)

    def _move_on(self, transport: Transport) -> None:
        """Use the next gateway, where there is another and no other task switched to it yet."""
        if len(self._targets) > 1 and transport is self._transport:
            self._replace()

    async def _open_stream(self) -> CallStream:
        if self._transport.carried_calls:
            self._move_on(self._transport)
        self._transport.carried_calls = True
        return await self._transport.open_stream(self.mux.is_busy, self._renew)

    def _renew(self) -> None:
        """Replace a channel that is silent, by one to the next gateway if there is one."""
        if self._usable.is_set():
            self._replace()

    async def _ask_once(self, choose: Choose[Q, A], request: Q, ends: float) -> A:
        if self._closed:
            raise _closed()
        if not self._usable.is_set():
            await self._usable.wait()
        transport = self._transport
        try:
            response = await transport.unary(choose, request, max(0.001, ends - time.monotonic()))
        except (grpc.aio.AioRpcError, Unavailable) as failed:
            error = from_rpc_error(failed) if isinstance(failed, grpc.aio.AioRpcError) else failed
            if isinstance(error, Unavailable) and self._usable.is_set():
                self._move_on(transport)
            raise error from None
        except asyncio.CancelledError:
            if self._usable.is_set() and transport is self._transport:
                raise
            # The channel was closed under this RPC, for a fork or for good, which cancelled it; the caller did not.
            raise MeshUnavailable("the connection was closed under the request", changed=True) from None
        self._answered = True
        return response

    async def _explained(self, error: SandmeshError) -> SandmeshError:
        # Where a mesh names a part of it that does not answer, it does so itself.
        if not isinstance(error, MeshUnavailable) or "driver" in error.facts:
            return error
        address = ", ".join(target.address for target in self._targets)
        message, fix = f"no mesh answers at {address}", "start one there (sandmesh up) or give another address"
        for target in () if self._answered or self._closed else tuple(self._targets):
            found = await diagnose(target, error.message)
            message, fix = found or (message, fix)
        facts = {**error.facts, "address": address, "detail": error.message, "fix": fix}
        message = f"{message}: {fix}"
        return MeshUnavailable(message, facts, changed=error.changed)


def _closed() -> MeshUnavailable:
    return MeshUnavailable("the box was closed while this was under way", changed=True)


async def acquire(
    base_url: str | None, bearer_token: str | None, timeout: float, ca_cert: str | Path | None = None
) -> Connection:
    """Return this loop's connection to a mesh; every user calls `release`.

    Raises:
        InvalidArgument: The address has no form that is taken, or `ca_cert` has no certificates.
        RuntimeUnavailable: There is no address and what a private mesh needs is not installed.
        SandmeshError: What a private mesh cannot do on this machine.
    """
    process().check_fork()
    address = configured(base_url)
    if address is None:
        with fork_lock:
            from sandmesh._client.private_mesh import PrivateMesh, find_program  # noqa: PLC0415 - few need one

        mesh = process().private_mesh(lambda: PrivateMesh(find_program()))
        address = await asyncio.to_thread(mesh.address, timeout)
    targets = tuple(trusting(one, ca_cert) for one in parse_all(address))
    token = configured_token(address, bearer_token)
    key = (asyncio.get_running_loop(), targets, token)
    process().forget_closed_loops()
    connections: dict[tuple[object, ...], Any] = process().connections
    found: Connection | None = connections.get(key)
    if found is None:
        found = connections[key] = Connection(key, targets, token)
    found.users += 1
    for other in [
        connection for connection in connections.values() if connection.loop is found.loop and connection.users == 0
    ]:
        await _forget(other)
    return found


async def release(connection: Connection) -> None:
    """Release a connection; the last user closes it.

    In the portal's loop, which outlives its users, it stays for the next one until another mesh is wanted.
    """
    connection.users -= 1
    if connection.users == 0 and not process().is_portal(connection.loop):
        await _forget(connection)


async def _forget(connection: Connection) -> None:
    process().connections.pop(connection.key, None)
    await connection.close()
