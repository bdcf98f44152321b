"""A mesh that does what the test says, over real gRPC; it keeps its calls when its server ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
from google.protobuf.message_factory import GetMessageClass

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import SandboxNotFound, SandmeshError, SessionNotFound, ToolNotFound, to_detail
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server

Tool = Callable[["Served"], Awaitable[None]]
Outbox = asyncio.Queue[pb.MultiplexResponse | None]


class News:
    """Wakes who waits for something to have happened."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()

    async def until(self, check: Callable[[], object]) -> None:
        while not check():
            self._event.clear()
            await self._event.wait()


class Served:
    """One call as its sandbox has it: every event is kept until it is acknowledged."""

    def __init__(self, start: pb.CallStart, news: News) -> None:
        self.start = start
        self.news = news
        self.arguments = bytes(start.arguments)
        self.log: list[pb.CallEvent] = []
        self.sent = 0
        self.acknowledged = 0
        self.starts = 1
        self.moved = asyncio.Condition()
        self.whole = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.attached: Outbox | None = None

    async def send(self, **event: Any) -> None:
        await self.send_all(event)

    async def send_all(self, *events: dict[str, Any]) -> None:
        """Send events in one message."""
        made = [pb.CallEvent(sequence=self.sent + n, **event) for n, event in enumerate(events, 1)]
        self.sent += len(made)
        self.log.extend(made)
        self.deliver(made)
        self.news.tell()

    async def write(self, data: bytes, stream: pb.Stream.ValueType = pb.STREAM_STDOUT) -> None:
        """Write output when the window has room."""
        async with self.moved:
            await self.moved.wait_for(lambda: self.unacknowledged() + len(data) <= self.start.window_bytes)
        await self.send(output=pb.Output(stream=stream, data=data))

    async def end(self, **result: Any) -> None:
        result.setdefault("reason", pb.END_REASON_EXITED)
        await self.send(result=pb.Result(**result))

    def unacknowledged(self) -> int:
        return sum(len(event.output.data) for event in self.log)

    def deliver(self, events: list[pb.CallEvent]) -> None:
        if self.attached is not None and events:
            batch = pb.CallEventBatch(call_id=self.start.call_id, events=events)
            self.attached.put_nowait(pb.MultiplexResponse(batch=batch))

    async def acknowledge(self, sequence: int) -> None:
        async with self.moved:
            self.acknowledged = max(self.acknowledged, sequence)
            self.log = [event for event in self.log if event.sequence > self.acknowledged]
            self.moved.notify_all()
        self.news.tell()


class StandIn:
    """The three public services. `tools` are what its sandboxes can do; the rest is for tests to look at."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.calls: dict[str, Served] = {}
        self.sessions: dict[tuple[str, str], session_pb2.Session] = {}
        self.requests: list[Any] = []
        self.streams = 0
        self.messages = 0
        self.metadata: list[dict[str, str | bytes]] = []
        self.refusals: list[SandmeshError] = []
        self.hold_connects: asyncio.Event | None = None
        self.health: sandbox_pb2.GetMeshHealthResponse | SandmeshError = sandbox_pb2.GetMeshHealthResponse()
        self.news = News()
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self, address: str = "127.0.0.1:0") -> AsyncGenerator[str]:
        """Listen until the block ends."""
        registrations = [
            served(pb, "CallService", Multiplex=self.multiplex, ListTools=self.list_tools),
            served(
                session_pb2,
                "SessionService",
                ConnectSession=self.connect_session,
                KeepSession=self.keep_session,
                ReleaseSession=self.release_session,
                ListSessions=self.list_sessions,
            ),
            served(
                sandbox_pb2,
                "SandboxService",
                GetSandbox=self.get_sandbox,
                GetCapacity=self.get_capacity,
                GetMeshHealth=self.get_mesh_health,
                PauseSandbox=self.pause_sandbox,
                ResumeSandbox=self.resume_sandbox,
            ),
        ]
        async with open_server([address], registrations, grace=0) as listening:
            yield listening.addresses[0]

    # CallService

    async def multiplex(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.MultiplexResponse]:
        self.streams += 1
        self.metadata.append(dict(context.invocation_metadata()))
        outbox: Outbox = asyncio.Queue()
        reading = asyncio.create_task(self._read(request_iterator, outbox))
        reading.add_done_callback(lambda _: outbox.put_nowait(None))
        try:
            while (response := await outbox.get()) is not None:
                yield response
        finally:
            reading.cancel()
            for call in self.calls.values():
                if call.attached is outbox:
                    call.attached = None

    async def _read(self, requests: AsyncIterator[pb.MultiplexRequest], outbox: Outbox) -> None:
        async for request in requests:
            self.messages += 1
            for frame in request.frames:
                await self._take(frame, outbox)

    async def _take(self, frame: pb.CallFrame, outbox: Outbox) -> None:
        call = self.calls.get(frame.call_id)
        if frame.HasField("start"):
            self._start(frame, call, outbox)
        elif call is None:
            refused = to_detail(SandboxNotFound("no such call"))
            batch = pb.CallEventBatch(call_id=frame.call_id, error=refused)
            outbox.put_nowait(pb.MultiplexResponse(batch=batch))
        elif frame.HasField("argument_chunk"):
            call.arguments += frame.argument_chunk.data
            if len(call.arguments) == call.start.arguments_size:
                call.whole.set()
        elif frame.HasField("acknowledge"):
            await call.acknowledge(frame.acknowledge.sequence)
        elif frame.HasField("cancel"):
            call.cancelled.set()
        elif frame.HasField("attach"):
            await call.acknowledge(frame.attach.after_sequence)
            call.attached = outbox
            call.deliver(list(call.log))

    def _start(self, frame: pb.CallFrame, known: Served | None, outbox: Outbox) -> None:
        if known is not None:
            known.starts += 1
            known.attached = outbox
            known.deliver(list(known.log))
            return
        tool = self.tools.get(frame.start.tool)
        if tool is None:
            error = ToolNotFound(f"no tool {frame.start.tool}", {"known": ",".join(self.tools)})
            batch = pb.CallEventBatch(call_id=frame.call_id, error=to_detail(error))
            outbox.put_nowait(pb.MultiplexResponse(batch=batch))
            return
        call = self.calls[frame.call_id] = Served(frame.start, self.news)
        call.attached = outbox
        if not frame.start.arguments_size:
            call.whole.set()
        task = asyncio.create_task(self._run(tool, call))
        self._tasks.add(task)
        self.news.tell()
        task.add_done_callback(self._tasks.discard)

    async def _run(self, tool: Tool, call: Served) -> None:
        await call.whole.wait()
        await tool(call)

    async def list_tools(self, request: pb.ListToolsRequest, context: Any) -> pb.ListToolsResponse:
        schema = b'{"type": "object", "properties": {}}'
        tools = [
            pb.Tool(name=name, group="generic", description="A tool.", input_schema_json=schema) for name in self.tools
        ]
        return pb.ListToolsResponse(tools=[tool for tool in tools if request.group in ("", tool.group)])

    # SessionService

    async def connect_session(
        self, request: session_pb2.ConnectSessionRequest, context: Any
    ) -> session_pb2.ConnectSessionResponse:
        self._note(request, context)
        ids = (request.user_id, request.session_id)
        session = self.sessions.setdefault(ids, session_pb2.Session(user_id=ids[0], session_id=ids[1]))
        if self.hold_connects is not None:
            await self.hold_connects.wait()
        for slot in request.slots:
            name = slot.slot or slot.spec.template
            if name not in session.sandboxes:
                record = session.sandboxes[name]
                record.sandbox_id = f"sb_{next(self._numbers)}"
                record.state = sandbox_pb2.SANDBOX_STATE_READY
                record.spec.CopyFrom(slot.spec)
                record.lease.fencing_token = 7
        return session_pb2.ConnectSessionResponse(session=session)

    async def get_mesh_health(
        self, request: sandbox_pb2.GetMeshHealthRequest, context: Any
    ) -> sandbox_pb2.GetMeshHealthResponse:
        self._note(request, context)
        if isinstance(self.health, SandmeshError):
            raise self.health
        return self.health

    async def keep_session(
        self, request: session_pb2.KeepSessionRequest, context: Any
    ) -> session_pb2.KeepSessionResponse:
        self._note(request, context)
        session = self.sessions.get((request.user_id, request.session_id))
        if session is None:
            raise SessionNotFound("no such session")
        return session_pb2.KeepSessionResponse(session=session)

    async def release_session(
        self, request: session_pb2.ReleaseSessionRequest, context: Any
    ) -> session_pb2.ReleaseSessionResponse:
        self._note(request, context)
        self.sessions.pop((request.user_id, request.session_id), None)
        return session_pb2.ReleaseSessionResponse()

    async def list_sessions(
        self, request: session_pb2.ListSessionsRequest, context: Any
    ) -> session_pb2.ListSessionsResponse:
        """Give pages of one."""
        self._note(request, context)
        own = sorted(ids for ids in self.sessions if ids[0] == request.user_id and ids[1] > request.page_token)
        token = own[0][1] if own[1:] else ""
        return session_pb2.ListSessionsResponse(sessions=[self.sessions[ids] for ids in own[:1]], next_page_token=token)

    # SandboxService

    async def get_sandbox(self, request: sandbox_pb2.GetSandboxRequest, context: Any) -> sandbox_pb2.GetSandboxResponse:
        self._note(request, context)
        return sandbox_pb2.GetSandboxResponse(sandbox=self._record(request.sandbox_id))

    async def pause_sandbox(
        self, request: sandbox_pb2.PauseSandboxRequest, context: Any
    ) -> sandbox_pb2.PauseSandboxResponse:
        self._note(request, context)
        assert request.fencing_token == 7
        self._record(request.sandbox_id).state = sandbox_pb2.SANDBOX_STATE_PAUSED
        return sandbox_pb2.PauseSandboxResponse()

    async def resume_sandbox(
        self, request: sandbox_pb2.ResumeSandboxRequest, context: Any
    ) -> sandbox_pb2.ResumeSandboxResponse:
        self._note(request, context)
        assert request.fencing_token == 7
        self._record(request.sandbox_id).state = sandbox_pb2.SANDBOX_STATE_READY
        return sandbox_pb2.ResumeSandboxResponse()

    def _record(self, sandbox_id: str) -> sandbox_pb2.Sandbox:
        records = [record for session in self.sessions.values() for record in session.sandboxes.values()]
        found = [record for record in records if record.sandbox_id == sandbox_id]
        if not found:
            raise SandboxNotFound(f"no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return found[0]

    async def get_capacity(
        self, request: sandbox_pb2.GetCapacityRequest, context: Any
    ) -> sandbox_pb2.GetCapacityResponse:
        self._note(request, context)
        return sandbox_pb2.GetCapacityResponse(limit=10)

    def _note(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.news.tell()
        self.metadata.append(cast("dict[str, str | bytes]", dict(context.invocation_metadata())))
        if self.refusals:
            raise self.refusals.pop(0)

    def requests_of(self, kind: type[Any]) -> list[Any]:
        """Return the requests of one kind that came."""
        return [request for request in self.requests if isinstance(request, kind)]


def served(module: Any, name: str, **methods: Any) -> ServiceRegistration:
    """Give some methods of a service as gRPC wants them."""
    service = module.DESCRIPTOR.services_by_name[name]
    made: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method, behaviour in methods.items():
        described = service.methods_by_name[method]
        streams = described.client_streaming
        make = grpc.stream_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        request = GetMessageClass(described.input_type)
        made[method] = make(behaviour, request.FromString, GetMessageClass(described.output_type).SerializeToString)
    handler = grpc.method_handlers_generic_handler(service.full_name, made)
    return ServiceRegistration(service.full_name, lambda server: server.add_generic_rpc_handlers((handler,)))


def text(block: str) -> pb.Content:
    """Give a text block as tools send it."""
    return pb.Content(json=b'{"type": "text", "text": "' + block.encode() + b'"}')


async def cell(call: Served) -> None:
    """Answer the two cells that everybody tries first, and echo the rest."""
    if b"1+1" in call.arguments:
        shown: dict[str, Any] = {"content": text("2")}
    else:
        data = b"Hello, World!\n" if b"Hello, World!" in call.arguments else call.arguments
        shown = {"output": pb.Output(stream=pb.STREAM_STDOUT, data=data)}
    ended = pb.Result(reason=pb.END_REASON_EXITED)
    await call.send_all({"started": pb.Started(pid=7)}, shown, {"result": ended})
