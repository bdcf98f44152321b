"""An agent and an allocator that do what the test says, over the real frames and real sockets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandboxNotFound, SandmeshError, WrongState
from sandmesh.shared import frames
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.server import ServiceRegistration

Resolved = sandbox_pb2.ResolveSandboxResponse
TOKEN = secrets.token_hex(8)


class Peer:
    """One link, seen from the agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def receive(self) -> agent_pb2.ToAgent:
        return agent_pb2.ToAgent.FromString(await frames.read(self.reader, frames.MAX_LINK_MESSAGE))

    def send(self, frame: agent_pb2.FromAgent) -> None:
        self.writer.write(frames.pack(frame.SerializeToString()))

    def send_events(self, channel: int, call_id: str, *events: call_pb2.CallEvent) -> None:
        batch = call_pb2.CallEventBatch(call_id=call_id, events=events)
        final = bool(events) and events[-1].HasField("result")
        last = events[-1].sequence if events else 0
        frame = agent_pb2.FromAgent(channel=channel, last_sequence=last, final=final)
        frame.batch = batch.SerializeToString()
        self.send(frame)


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def agent(path: Path, script: Script, sandbox_id: str = "sb_one") -> AsyncGenerator[None]:
    """Serve links at a socket: a hello each, then the script."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        hello = (await peer.receive()).hello
        assert hello.agent_token == TOKEN
        peer.send(agent_pb2.FromAgent(hello=agent_pb2.AgentHello(protocol=frames.LINK_PROTOCOL, sandbox_id=sandbox_id)))
        try:
            await script(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()


class Allocator:
    """Knows where one sandbox is, or how it ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.endpoint = f"unix://{path}"
        self.error: SandmeshError | None = None
        self.resolved = 0
        self.resolutions = asyncio.Condition()
        self.reports: asyncio.Queue[list[str]] = asyncio.Queue()
        self.pooled: asyncio.Queue[str] = asyncio.Queue()
        """The sandboxes that are told to wait in pools, all at the same agent."""

    async def resolve(self, request: sandbox_pb2.ResolveSandboxRequest, context: Context) -> Resolved:
        self.resolved += 1
        async with self.resolutions:
            self.resolutions.notify_all()
        if self.error is not None:
            raise self.error
        if request.sandbox_id != "sb_one":
            raise SandboxNotFound(f"no sandbox {request.sandbox_id}", {"sandbox_id": request.sandbox_id})
        sandbox = sandbox_pb2.Sandbox(sandbox_id="sb_one", lease=sandbox_pb2.Lease(fencing_token=7))
        return Resolved(sandbox=sandbox, endpoint=self.endpoint, agent_token=TOKEN)

    async def watch_pools(
        self, request: sandbox_pb2.WatchPoolsRequest, context: Context
    ) -> AsyncIterator[sandbox_pb2.WatchPoolsResponse]:
        while True:
            waiting = await self.pooled.get()
            yield sandbox_pb2.WatchPoolsResponse(sandbox_id=waiting, endpoint=self.endpoint, agent_token=TOKEN)

    async def until_resolved(self, times: int) -> None:
        """Wait until it was asked to resolve so many times."""
        async with self.resolutions:
            await self.resolutions.wait_for(lambda: self.resolved >= times)

    async def get(self, request: sandbox_pb2.GetSandboxRequest, context: Context) -> sandbox_pb2.GetSandboxResponse:
        return sandbox_pb2.GetSandboxResponse(sandbox=sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id))

    async def pause(
        self, request: sandbox_pb2.PauseSandboxRequest, context: Context
    ) -> sandbox_pb2.PauseSandboxResponse:
        self.error = WrongState("it is paused: resume it", {"state": "PAUSED"})
        return sandbox_pb2.PauseSandboxResponse(sandbox=sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id))

    async def resume(
        self, request: sandbox_pb2.ResumeSandboxRequest, context: Context
    ) -> sandbox_pb2.ResumeSandboxResponse:
        self.error = None
        return sandbox_pb2.ResumeSandboxResponse(sandbox=sandbox_pb2.Sandbox(sandbox_id=request.sandbox_id))

    async def report(
        self, request: sandbox_pb2.ReportActivityRequest, context: Context
    ) -> sandbox_pb2.ReportActivityResponse:
        self.reports.put_nowait(list(request.sandbox_ids))
        return sandbox_pb2.ReportActivityResponse()

    def registration(self) -> ServiceRegistration:
        """Return the methods as a service."""
        make = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ResolveSandbox": make(
                self.resolve, sandbox_pb2.ResolveSandboxRequest.FromString, Resolved.SerializeToString
            ),
            "WatchPools": grpc.unary_stream_rpc_method_handler(
                self.watch_pools,
                sandbox_pb2.WatchPoolsRequest.FromString,
                sandbox_pb2.WatchPoolsResponse.SerializeToString,
            ),
            "ReportActivity": make(
                self.report,
                sandbox_pb2.ReportActivityRequest.FromString,
                sandbox_pb2.ReportActivityResponse.SerializeToString,
            ),
            "PauseSandbox": make(
                self.pause,
                sandbox_pb2.PauseSandboxRequest.FromString,
                sandbox_pb2.PauseSandboxResponse.SerializeToString,
            ),
            "ResumeSandbox": make(
                self.resume,
                sandbox_pb2.ResumeSandboxRequest.FromString,
                sandbox_pb2.ResumeSandboxResponse.SerializeToString,
            ),
            "GetSandbox": make(
                self.get,
                sandbox_pb2.GetSandboxRequest.FromString,
                sandbox_pb2.GetSandboxResponse.SerializeToString,
            ),
        }
        name = sandbox_pb2.DESCRIPTOR.services_by_name["SandboxService"].full_name
        handler = grpc.method_handlers_generic_handler(name, methods)
        return ServiceRegistration(name, lambda server: server.add_generic_rpc_handlers((handler,)))


def output(sequence: int, text: str) -> call_pb2.CallEvent:
    """Return an event of standard output."""
    data = call_pb2.Output(stream=call_pb2.STREAM_STDOUT, data=text.encode())
    return call_pb2.CallEvent(sequence=sequence, output=data)


def result(sequence: int, message: str = "") -> call_pb2.CallEvent:
    """Return the last event."""
    ended = call_pb2.Result(reason=call_pb2.END_REASON_EXITED, message=message)
    return call_pb2.CallEvent(sequence=sequence, result=ended)
