"""Connections to meshes: one per address, token and event loop of a process, shared by all that use it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from sandmesh._calls import call_socket
from sandmesh._calls.multiplexer import CallMux, Stream
from sandmesh._client import ask_socket
from sandmesh._client.addresses import Target, configured, configured_token, parse_all, trusting
from sandmesh._client.channel import METHODS, Stubs, make_channel, make_metadata, make_stubs, may_repeat
from sandmesh._client.heartbeat import WatchedStream
from sandmesh._client.private_mesh import PrivateMesh, find_program
from sandmesh._client.process_state import process
from sandmesh.errors import MeshUnavailable, SandmeshError, Unavailable
from sandmesh.shared.backoff import back_off
from sandmesh.shared.wire_errors import from_rpc_error

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
Choose = Callable[[Stubs], "grpc.aio.UnaryUnaryMultiCallable[Q, A]"]
ChooseStream = Callable[[Stubs], "grpc.aio.UnaryStreamMultiCallable[Q, A]"]

# How long an address is tried that never answered, and one that did: a service that restarts is back in seconds.
NEVER_SECONDS = 2.0
AGAIN_SECONDS = 30.0


class Connection:
    """One channel to a mesh and the stream that carries this loop's calls over it.

    Of several gateways one is used until it does not answer, then the next.
    """

    def __init__(self, key: tuple[object, ...], targets: Sequence[Target], bearer_token: str | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.key = key
        self.registered_templates: dict[str, Any] = {}
        """The definitions of templates that this mesh was told, by name."""
        self.refused_templates: set[str] = set()
        """Those that it was told in vain: its templates are not this program's to change."""
        self._targets = deque(targets)
        self._metadata = make_metadata(bearer_token)
        self._answered = False
        self._closed = False
        self._usable = asyncio.Event()
        self._streamed: Stubs | None = None
        self._asks: ask_socket.AskSocket | None = None
        self._dialling = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self.mux = CallMux(", ".join(target.address for target in targets))
        self.resume()

    async def ask(self, choose: Choose[Q, A], request: Q, timeout: float) -> A:
        """Send a unary RPC, again with growing pauses where it may be and what stood in its way may pass.

        Raises:
            SandmeshError: What the mesh answered.
            MeshUnavailable: Nothing answers at the address.
        """
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
                    raise self._explained(error) from None
            await asyncio.sleep(wait)
        raise MeshUnavailable("no mesh answers")  # the pauses never end

    @property
    def carries(self) -> bool:
        """Whether its channel is open."""
        return self._usable.is_set()

    async def open_bulk(self, busy: Callable[[], bool]) -> Stream:
        """Open a stream as that of all calls, for one call of much data that must not be before the others.

        `busy` says whether an answer is waited for now.

        Raises:
            MeshUnavailable: The connection was closed.
        """
        if self._closed:
            raise _closed()
        await self._usable.wait()
        return await self._stream_over(self._stubs, busy)

    def follow(self, choose: ChooseStream[Q, A], request: Q) -> AsyncIterable[A]:
        """Send an RPC that is answered by a stream, and give its responses until the caller lets go.

        It is sent once: who follows knows after what to go on.
        """
        return choose(self._stubs)(request, metadata=self._metadata)

    async def close(self) -> None:
        """Close the channel for good."""
        self._closed = True
        await self.suspend()
        self.mux.fail_all(_closed())

    async def suspend(self) -> None:
        """Close the channel; what waits for an answer waits for `resume`."""
        if not self._usable.is_set():
            return
        self._usable.clear()
        async with self._dialling:
            if self._asks is not None:
                self._asks.close()
        await self.mux.suspend()
        await asyncio.gather(self._channel.close(), *self._closing)
        self._streamed = None
        del self._channel, self._stubs

    def resume(self) -> None:
        """Open the channel; running calls are attached to again."""
        if self._closed:
            return
        self._dial()
        self.mux.resume(self._open_stream)
        self._usable.set()

    def _dial(self) -> None:
        self._channel = make_channel(self._targets[0])
        self._stubs = make_stubs(self._channel)

    def _move_on(self, stubs: Stubs) -> None:
        """Use the next gateway, where there is another and nobody went on to it yet."""
        if len(self._targets) > 1 and stubs is self._stubs:
            self._replace()

    def _replace(self) -> None:
        task = asyncio.create_task(self._channel.close(1.0), name="sandmesh-old-channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        if self._asks is not None:
            self._asks.retire()
        self._targets.rotate(-1)
        self._dial()

    async def _open_stream(self) -> Stream:
        """Open what carries the calls: the call socket where there is one, which takes half the time a call."""
        if self._streamed is not None:
            self._move_on(self._streamed)
        self._streamed = self._stubs
        return await self._stream_over(self._streamed, self.mux.is_busy)

    async def _stream_over(self, stubs: Stubs, busy: Callable[[], bool]) -> Stream:
        path = self._targets[0].path
        found = None if path is None else await call_socket.connect(path, self._metadata)
        if found is not None:
            return found
        return WatchedStream(stubs.calls.Multiplex(metadata=self._metadata), busy, self._renew)

    def _renew(self) -> None:
        """Make a new channel where the old one is silent, to the next gateway if there is one."""
        if self._usable.is_set():
            self._replace()

    async def _ask_once(self, choose: Choose[Q, A], request: Q, ends: float) -> A:
        if self._closed:
            raise _closed()
        if not self._usable.is_set():
            await self._usable.wait()
        asks = await self._ask_socket()
        if not self._usable.is_set():
            raise MeshUnavailable("the connection was closed before the request was sent")
        stubs, seconds = self._stubs, max(0.001, ends - time.monotonic())
        try:
            if asks is None or request.ByteSize() > ask_socket.LARGEST_REQUEST:
                answer = await choose(stubs)(request, timeout=seconds, metadata=self._metadata)
            else:
                method = METHODS[request.DESCRIPTOR.full_name]
                response = await asks.ask(method.path, request.SerializeToString(), seconds)
                answer = cast("A", method.response.FromString(response))
        except (grpc.aio.AioRpcError, Unavailable) as failed:
            raise self._failed(failed, stubs) from None
        except asyncio.CancelledError:
            if self._usable.is_set() and stubs is self._stubs:
                raise
            # The channel was closed under this RPC, for a fork or for good, which cancelled it; the caller did not.
            raise MeshUnavailable("the connection was closed under the request", changed=True) from None
        self._answered = True
        return answer

    def _failed(self, failed: grpc.aio.AioRpcError | Unavailable, stubs: Stubs) -> SandmeshError:
        error = from_rpc_error(failed) if isinstance(failed, grpc.aio.AioRpcError) else failed
        if isinstance(error, Unavailable) and self._usable.is_set():
            self._move_on(stubs)
        return error

    async def _ask_socket(self) -> ask_socket.AskSocket | None:
        """Give what carries unary RPCs in a part of gRPC's time, where the gateway has it."""
        path = self._targets[0].path
        if path is None or (self._asks is not None and self._asks.usable):
            return self._asks if path is not None else None
        async with self._dialling:
            if self._usable.is_set() and (self._asks is None or not self._asks.usable):
                self._asks = await ask_socket.connect(path, self._metadata)
        return self._asks

    def _explained(self, error: SandmeshError) -> SandmeshError:
        if not isinstance(error, MeshUnavailable):
            return error
        address = ", ".join(target.address for target in self._targets)
        message = f"no mesh answers at {address}: start one there (sandmesh up) or give another address"
        facts = {**error.facts, "address": address, "detail": error.message}
        return MeshUnavailable(message, facts, changed=error.changed)


def _closed() -> MeshUnavailable:
    return MeshUnavailable("the box was closed while this was under way", changed=True)


async def acquire(
    base_url: str | None, bearer_token: str | None, timeout: float, ca_cert: str | Path | None = None
) -> Connection:
    """Give this loop's connection to a mesh; every user lets it go with `release`.

    Raises:
        InvalidArgument: The address has no form that is taken, or `ca_cert` has no certificates.
        RuntimeUnavailable: There is no address and what a private mesh needs is not installed.
        SandmeshError: What a private mesh cannot do on this machine.
    """
    process().check_fork()
    address = configured(base_url)
    if address is None:
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
    for other in [one for one in connections.values() if one.loop is found.loop and one.users == 0]:
        await _forget(other)
    return found


async def release(connection: Connection) -> None:
    """Let a connection go; the last user closes it.

    In the portal's loop, which outlives its users, it stays for the next one until another mesh is wanted.
    """
    connection.users -= 1
    if connection.users == 0 and not process().is_portal(connection.loop):
        await _forget(connection)


async def _forget(connection: Connection) -> None:
    process().connections.pop(connection.key, None)
    await connection.close()
