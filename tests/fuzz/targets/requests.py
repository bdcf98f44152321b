"""Every public RPC of a running mesh, sent by users, administrators, readers and strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Final

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.errors import InternalError, SandmeshError, from_detail
from tests.fuzz.messages import Filler, wire
from tests.fuzz.target import Fault, Feed, Target
from tests.mesh.tenants.access_world import Owned, World, open_world, public_methods

METHODS: Final = list(public_methods())
LEAD: Final = "an administrator of ada's project"
WHO: Final = ("ada", "ada", "bob", "an administrator", "a reader of ada's", LEAD, "nobody")
FOR_USERS: Final = ("RegisterTemplate",)
"""What only users try, in vain: an administrator's would install whatever a random name is a package's."""

_SECONDS: Final = 5.0
_STREAM_SECONDS: Final = 0.3
_ROUND: Final = 200
"""After how many requests what they created is released again."""
_FAULTS: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_FENCING: Final = 1 << 50
_KNOWN: Final = {
    "sandbox_id": "sb_" + "f" * 26,
    "session_id": "f" * 8,
    "call_id": "f" * 16,
    "token_id": "f" * 16,
    "snapshot_id": "snap_" + "f" * 26,
    "template": "base",
    "slot": "base",
    "tool": "run_shell_command",
    "arguments": b'{"command": "true"}',
    "fencing_token": _FENCING,
}
"""Placeholders, as long as what a world puts in their place, so that messages keep their lengths."""


def make_request(random: Random) -> bytes:
    """Make the number of a method, that of a caller, and the bytes of a request, which may be none."""
    number = random.randrange(len(METHODS))
    message = GetMessageClass(METHODS[number].input_type)()
    Filler(random, _known, random.choice((0.2, 0.5, 0.8))).fill(message)
    caller = 0 if METHODS[number].name in FOR_USERS else random.randrange(len(WHO))
    return bytes((number, caller)) + wire(random, message)


def _known(random: Random, field: FieldDescriptor) -> Any:
    if field.name == "user_id" and random.random() < 0.7:
        return random.choice(("ada", "bob"))
    return _KNOWN.get(field.name) if random.random() < 0.6 else None


@asynccontextmanager
async def open_mesh_with_users() -> AsyncGenerator[Feed]:
    """Run a mesh with what is ada's in it; at its end it must still answer, and hold nothing that was released."""
    async with open_world() as world:
        await world.lead(LEAD, "research", "ada")
        sender = _Sender(world, await world.own("ada"))
        yield sender.feed
        await sender.release_all()


class _Sender:
    """Sends requests with the ids of what there is."""

    def __init__(self, world: World, own: Owned) -> None:
        self._world = world
        self._own = own
        self._sent = 0
        self._sandboxes: Any = sandbox_pb2_grpc.SandboxServiceStub(world.channel)

    async def feed(self, data: bytes) -> str:
        """Send a request; return the name of the status that it ends with."""
        self._sent += 1
        if not self._sent % _ROUND:
            await self.release_all()
            with suppress(SandmeshError, grpc.aio.AioRpcError):
                # An administrator's request may have left ada a quota of nothing.
                self._own = await self._world.own("ada")
        method, who, request = METHODS[data[0] % len(METHODS)], WHO[data[1] % len(WHO)], self._placed(data[2:])
        try:
            await self._send(method, request, who)
        except grpc.aio.AioRpcError as error:
            if error.code() in _FAULTS:
                raise Fault(f"{method.full_name} as {who}: {error.code().name}: {error.details()}") from None
            return error.code().name
        return "ok"

    def _placed(self, request: bytes) -> bytes:
        for name in ("snapshot_id", "sandbox_id", "token_id", "call_id", "session_id"):
            placeholder: Any = _KNOWN[name]
            request = request.replace(placeholder.encode(), getattr(self._own, name).encode())
        return request.replace(_varint(_FENCING), _varint(self._own.fencing_token))

    async def _send(self, method: MethodDescriptor, request: bytes, who: str) -> None:
        path, metadata = f"/{method.containing_service.full_name}/{method.name}", self._world.metadata(who)
        channel: Any = self._world.channel
        if not method.server_streaming:
            await channel.unary_unary(path)(request, metadata=metadata, timeout=_SECONDS)
            return
        over = asyncio.Event()
        if method.client_streaming:
            stream = channel.stream_stream(path)(_kept_open(request, over), metadata=metadata)
        else:
            stream = channel.unary_stream(path)(request, metadata=metadata)
        try:
            with suppress(TimeoutError, StopAsyncIteration):
                _check(method, await asyncio.wait_for(anext(aiter(stream)), _STREAM_SECONDS))
        finally:
            stream.cancel()
            over.set()

    async def release_all(self) -> None:
        """Release every sandbox, as the administrator.

        Raises:
            Fault: One is still there.
        """
        metadata = self._world.metadata("root")
        listing = sandbox_pb2.ListSandboxesRequest(page_size=1000)
        found = (await self._sandboxes.ListSandboxes(listing, metadata=metadata)).sandboxes
        for one in found:
            release = sandbox_pb2.ReleaseSandboxRequest(
                sandbox_id=one.sandbox_id, fencing_token=one.lease.fencing_token
            )
            with suppress(grpc.aio.AioRpcError):
                await self._sandboxes.ReleaseSandbox(release, metadata=metadata)
        held = (await self._sandboxes.ListSandboxes(listing, metadata=metadata)).sandboxes
        left = {one.sandbox_id for one in held if one.state == sandbox_pb2.SANDBOX_STATE_READY}
        if left & {one.sandbox_id for one in found}:
            raise Fault(f"released, and still there: {left}")


def _check(method: MethodDescriptor, data: bytes) -> None:
    batch = getattr(GetMessageClass(method.output_type).FromString(data), "batch", None)
    if batch is not None and batch.HasField("error") and isinstance(error := from_detail(batch.error), InternalError):
        raise Fault(f"{method.full_name}: {error}")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


async def _kept_open(request: bytes, over: asyncio.Event) -> AsyncIterator[bytes]:
    yield request
    await over.wait()


TARGETS: Final = (Target("requests", make_request, open_mesh_with_users, whole=True),)
