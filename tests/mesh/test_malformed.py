"""Requests that are no messages, sent to every public RPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from sandmesh import BaseSandboxAsync
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.call.v1 import call_pb2_grpc
from sandmesh.errors import InvalidArgument
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh

from .access_world import public_methods

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
