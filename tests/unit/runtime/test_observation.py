"""One request has one id and names the same things in the logs of all services that it passes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.errors import SandboxNotFound
from sandmeshd.auth.channels import open_channel
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.observation import HEADER, observed
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server
from sandmeshd.runtime.telemetry.metrics import Observed

Context = grpc.aio.ServicerContext[Any, Any]
SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name


class Link:
    """Serves GetSandbox and WatchSandboxes: keeps the log's context that a request has here, and asks the next one."""

    def __init__(self, after: grpc.aio.Channel | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self._after = sandbox_pb2_grpc.SandboxServiceStub(after) if after is not None else None

    async def get(self, request: pb.GetSandboxRequest, context: Context) -> pb.GetSandboxResponse:
        self.seen.append(structlog.contextvars.get_contextvars())
        if self._after is not None:
            return await self._after.GetSandbox(request)
        if request.sandbox_id == "sb_none":
            raise SandboxNotFound("there is none")
        return pb.GetSandboxResponse()

    async def watch(
        self, request: pb.WatchSandboxesRequest, context: Context
    ) -> AsyncIterator[pb.WatchSandboxesResponse]:
        self.seen.append(structlog.contextvars.get_contextvars())
        if self._after is not None:
            async for response in self._after.WatchSandboxes(request):
                yield response
        yield pb.WatchSandboxesResponse()

    @property
    def service(self) -> ServiceRegistration:
        """The methods as a service."""
        method: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(
            self.get, pb.GetSandboxRequest.FromString, pb.GetSandboxResponse.SerializeToString
        )
        stream: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
            self.watch, pb.WatchSandboxesRequest.FromString, pb.WatchSandboxesResponse.SerializeToString
        )
        methods = {"GetSandbox": method, "WatchSandboxes": stream}
        handler = grpc.method_handlers_generic_handler(SERVICE, methods)
        return ServiceRegistration(SERVICE, lambda server: server.add_generic_rpc_handlers((handler,)))


@asynccontextmanager
async def serving(link: Link, path: Path, measured: Observed) -> AsyncGenerator[grpc.aio.Channel]:
    """Serve on a socket and give a channel to it."""
    address = f"unix://{path}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_server([address], [link.service], [observed(measured.rpcs)]))
        yield await stack.enter_async_context(open_channel(address))


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "one process"])
async def test_a_request_id_goes_through_all_services(tmp_path: Path, apart: bool) -> None:
    last = Link()
    async with serving(last, tmp_path / "last", Observed()) as over_grpc:
        within = local_channel([last.service])
        first = Link(over_grpc if apart else within)
        async with serving(first, tmp_path / "first", Observed()) as channel:
            stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
            await stub.GetSandbox(pb.GetSandboxRequest(sandbox_id="sb_1"), metadata=((HEADER, "r-1"),))
            await stub.GetSandbox(pb.GetSandboxRequest(sandbox_id="sb_2"))
            watched = stub.WatchSandboxes(pb.WatchSandboxesRequest(), metadata=((HEADER, "r-3"),))
            assert len([response async for response in watched]) == 2
    for link in (first, last):
        assert link.seen[0] == {"request_id": "r-1", "sandbox_id": "sb_1"}
        assert link.seen[2] == {"request_id": "r-3"}
    assert first.seen[1] == last.seen[1]
    assert last.seen[1]["request_id"] != "r-1"


async def test_what_a_client_sends_as_id_cannot_break_the_log(tmp_path: Path) -> None:
    link = Link()
    async with serving(link, tmp_path / "s", Observed()) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        for bad in ("a b", "x" * 129, '"}'):
            await stub.GetSandbox(pb.GetSandboxRequest(sandbox_id="sb_1"), metadata=((HEADER, bad),))
    assert all(len(seen["request_id"]) == 16 for seen in link.seen)


async def test_rpcs_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    measured, link = Observed(), Link()
    async with serving(link, tmp_path / "s", measured) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        await stub.GetSandbox(pb.GetSandboxRequest(sandbox_id="sb_1"))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetSandbox(pb.GetSandboxRequest(sandbox_id="sb_none"))
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetSandbox(pb.GetSandboxRequest())
        assert [response async for response in stub.WatchSandboxes(pb.WatchSandboxesRequest())]
    text = (await measured.text()).decode()
    name = 'method="sandmesh.api.sandbox.v1.SandboxService/GetSandbox"'
    assert f'sandmesh_rpcs_total{{{name},reason="OK"}} 1.0' in text
    assert f'sandmesh_rpcs_total{{{name},reason="SANDBOX_NOT_FOUND"}} 1.0' in text
    assert f'sandmesh_rpcs_total{{{name},reason="INVALID_ARGUMENT"}} 1.0' in text
    assert f"sandmesh_open_rpcs{{{name}}} 0.0" in text
    assert f"sandmesh_rpc_seconds_count{{{name}}} 3.0" in text
    assert f'{name.replace("GetSandbox", "WatchSandboxes")},reason="OK"' in text
    assert "sandmesh_rpc_seconds_count{" + name.replace("GetSandbox", "WatchSandboxes") not in text
