"""Requests that are no messages, sent to every public RPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh import BaseSandboxAsync
from sandmesh.api.audit.v1 import audit_pb2, audit_pb2_grpc
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.call.v1 import call_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import InvalidArgument
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.tenants.access_world import public_methods

MALFORMED = (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0f", b"\x00\x00")


async def _send(channel: Any, method: MethodDescriptor, data: bytes) -> None:
    path = f"/{method.containing_service.full_name}/{method.name}"
    with translated():
        if not method.server_streaming:
            await channel.unary_unary(path)(data)
            return
        taken = channel.stream_stream(path)(_one(data)) if method.client_streaming else channel.unary_stream(path)(data)
        await _read(taken, asyncio.Event())


async def _read(stream: AsyncIterator[bytes], begun: asyncio.Event) -> None:
    async for _ in stream:
        begun.set()


async def _one(data: Any) -> AsyncIterator[Any]:
    yield data


async def test_a_malformed_request_is_an_invalid_argument_and_leaves_no_traceback(
    mesh: Mesh, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(60), open_channel(mesh.addresses[0]) as channel:
        for method in public_methods():
            for data in MALFORMED:
                with pytest.raises(InvalidArgument):
                    await _send(channel, method, data)
    written = "".join(capfd.readouterr()) + caplog.text
    assert "Traceback" not in written
    assert "defect" not in written


async def test_values_that_there_are_not_are_invalid_arguments(mesh: Mesh) -> None:
    unknown: int = 9999
    grant = sandbox_pb2.NetworkGrant(hosts=["example.org"])
    grant.mode = unknown  # type: ignore[assignment]  # any client can send it
    slot = session_pb2.SlotSpec(spec=sandbox_pb2.SandboxSpec(template="base", network=grant))
    async with (
        asyncio.timeout(60),
        open_channel(mesh.addresses[0]) as channel,
        BaseSandboxAsync(base_url=mesh.addresses[0], network=["example.org"]) as box,
    ):
        sandboxes = sandbox_pb2_grpc.SandboxServiceStub(channel)
        change = sandbox_pb2.ChangeNetworkRequest(sandbox_id=box.sandbox_id, grant=grant)
        with pytest.raises(InvalidArgument, match="mode"), translated():
            await sandboxes.ChangeNetwork(change)
        sessions = session_pb2_grpc.SessionServiceStub(channel)
        with pytest.raises(InvalidArgument, match="mode"), translated():
            await sessions.ConnectSession(session_pb2.ConnectSessionRequest(session_id="one", slots=[slot]))
        listing = audit_pb2.ListAuditRequest(since=Timestamp(seconds=1 << 62))
        with pytest.raises(InvalidArgument, match="since"), translated():
            await audit_pb2_grpc.AuditServiceStub(channel).ListAudit(listing)


async def test_a_malformed_frame_ends_a_stream_that_had_begun(mesh: Mesh) -> None:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        start = pb.CallStart(sandbox_id=box.sandbox_id, call_id="one", tool="run_shell_command")
        start.arguments = b'{"command": "sleep 60"}'
        frame = pb.CallFrame(call_id="one", start=start)
        async with open_channel(mesh.addresses[0]) as channel:
            begun = asyncio.Event()

            async def requests() -> AsyncIterator[bytes]:
                yield pb.OpenCallRequest(frame=frame).SerializeToString()
                await begun.wait()
                yield MALFORMED[0]
                await asyncio.Event().wait()

            path = f"/{pb.DESCRIPTOR.services_by_name['CallService'].full_name}/OpenCall"
            untyped: Any = channel
            with pytest.raises(InvalidArgument), translated():
                await _read(untyped.stream_stream(path)(requests()), begun)
            stub = call_pb2_grpc.CallServiceStub(channel)
            await stub.CancelCall(pb.CancelCallRequest(sandbox_id=box.sandbox_id, call_id="one"))
