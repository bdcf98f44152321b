"""CallService: the envelope of a call is read here, everything else is relayed as it is."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

import grpc

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InvalidArgument, SandmeshError, TooLarge, from_detail
from sandmeshd.agentlink.link import request as request_agent
from sandmeshd.auth.principal import Principal, current_principal
from sandmeshd.gateway.calls.relay import CHUNK, Client, Relay, join
from sandmeshd.gateway.routes.routes import OwnedRoutes, Routes
from sandmeshd.gateway.settings import GatewaySettings

# The first listing waits for the MCP servers of the sandbox's template, which may be downloaded.
_LIST_SECONDS = 150.0
# Less than a response has at most, so that none is large by what it was joined with.
JOINED_BYTES = 64 * 1024
# Less than an agent holds of a call's unread input.
_MOST_INPUT = 8 * CHUNK

Context = grpc.aio.ServicerContext[Any, Any]
Item = TypeVar("Item")

NAME = pb.DESCRIPTOR.services_by_name["CallService"].full_name


class Calls:
    """What the gateway does for CallService; responses of streams are bytes already.

    `on_probe` is called where a principal names a sandbox that is another's.
    """

    def __init__(
        self, settings: GatewaySettings, routes: Routes, on_probe: Callable[[Principal, str], None] | None = None
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._on_probe = on_probe

    async def multiplex(self, requests: AsyncIterator[pb.MultiplexRequest], context: Context) -> None:
        """Carry all the calls of a client."""
        outbox: ResponseOutbox[bytes] = ResponseOutbox()
        client = self.make_client(outbox.put)
        joins = asyncio.Event()
        writing = asyncio.create_task(_write_all(outbox, joins, context))
        try:
            async for request in requests:
                if request.takes_more:
                    joins.set()
                client.take(request)
            outbox.end()
            await writing
        finally:
            writing.cancel()
            client.detach()

    def make_client(self, send: Callable[[bytes], None]) -> Client:
        """Return a client whose calls are carried together, with their responses going to `send`."""
        return Client(self._own_routes(), self._settings.deadline_grace_seconds, send)

    async def run_call(self, request: pb.RunCallRequest, context: Context) -> None:
        """Start a call and stream its events."""
        start = request.start
        start.call_id = start.call_id or uuid.uuid4().hex
        await self._follow(pb.CallFrame(call_id=start.call_id, start=start), context)

    async def attach_call(self, request: pb.AttachCallRequest, context: Context) -> None:
        """Replay a call's events and follow it."""
        await self._follow(pb.CallFrame(call_id=request.attach.call_id, attach=request.attach), context)

    async def open_call(self, requests: AsyncIterator[pb.OpenCallRequest], context: Context) -> None:
        """Carry one call in both directions."""
        stream = aiter(requests)
        first = await anext(stream, None)
        if first is None:
            raise InvalidArgument("the stream ended before its first frame: send start or attach")
        follower = CallFollower(gives_credit=False)
        relay = Relay(self._own_routes(), follower, first.frame.call_id, counted=True)
        relay.open(first.frame, self._settings.deadline_grace_seconds)
        reading = asyncio.create_task(_forward_all(stream, relay, follower.input))
        try:
            await follower.write_all(context)
        finally:
            reading.cancel()
            relay.detach()

    async def send_input(self, request: pb.SendInputRequest, context: Context) -> pb.SendInputResponse:
        """Write to a call's standard input."""
        frame = pb.CallFrame(call_id=request.call_id, input=request.input)
        answer = await self._ask(request.sandbox_id, frame, request.fencing_token)
        return pb.SendInputResponse(input_ack_sequence=answer.done.input_ack_sequence)

    async def signal_call(self, request: pb.SignalCallRequest, context: Context) -> pb.SignalCallResponse:
        """Signal a call's process group."""
        frame = pb.CallFrame(call_id=request.call_id, signal=request.signal)
        await self._ask(request.sandbox_id, frame, request.fencing_token)
        return pb.SignalCallResponse()

    async def resize_call(self, request: pb.ResizeCallRequest, context: Context) -> pb.ResizeCallResponse:
        """Resize a call's terminal."""
        frame = pb.CallFrame(call_id=request.call_id, resize=request.resize)
        await self._ask(request.sandbox_id, frame, request.fencing_token)
        return pb.ResizeCallResponse()

    async def cancel_call(self, request: pb.CancelCallRequest, context: Context) -> pb.CancelCallResponse:
        """Cancel a call."""
        frame = pb.CallFrame(call_id=request.call_id, cancel=pb.Cancel())
        await self._ask(request.sandbox_id, frame, request.fencing_token)
        return pb.CancelCallResponse()

    async def list_tools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:
        """List a sandbox's tools."""
        link = await self._own_routes().link(request.sandbox_id)
        token = request.fencing_token or link.fencing_token
        question = agent_pb2.ListTools(group=request.group, fencing_token=token)
        answer = await request_agent(link, agent_pb2.ToAgent(list_tools=question), _LIST_SECONDS)
        return pb.ListToolsResponse.FromString(answer.tools)

    def _own_routes(self) -> OwnedRoutes:
        return self._routes.of(current_principal(), self._on_probe)

    async def _ask(self, sandbox_id: str, frame: pb.CallFrame, token: int) -> agent_pb2.FromAgent:
        link = await self._own_routes().link(sandbox_id)
        fenced = agent_pb2.Fenced(frame=frame, fencing_token=token or link.fencing_token)
        return await request_agent(link, agent_pb2.ToAgent(call=fenced), self._settings.connect_timeout_seconds)

    async def _follow(self, first: pb.CallFrame, context: Context) -> None:
        follower = CallFollower(gives_credit=True)
        relay = Relay(self._own_routes(), follower, first.call_id, counted=True)
        relay.open(first, self._settings.deadline_grace_seconds)
        try:
            await follower.write_all(context)
        finally:
            relay.detach()


def _check_size(item: pb.Input) -> None:
    if len(item.data) > CHUNK:
        raise TooLarge("an Input has at most 1 MiB of data: send more of them")


async def _forward_all(requests: AsyncIterator[pb.OpenCallRequest], relay: Relay, window: InputWindow) -> None:
    try:
        async for request in requests:
            frame = request.frame
            if frame.HasField("input"):
                _check_size(frame.input)
                await window.add(frame.input)
            await relay.drain()
            relay.push(frame)
    except (TooLarge, InvalidArgument) as error:
        relay.push(pb.CallFrame(call_id=relay.call_id, detach=pb.Detach()))
        relay.refuse(error)


async def _write_all(outbox: ResponseOutbox[bytes], joins: asyncio.Event, context: Context) -> None:
    async for response in outbox:
        responses, size = [response], len(response)
        # Those that came while the last one was written: to write each separately is most of what it costs.
        while joins.is_set() and size < JOINED_BYTES and (following := outbox.take()) is not None:
            responses.append(following)
            size += len(following)
        await context.write(join(responses) if len(responses) > 1 else response)


class ResponseOutbox(Generic[Item]):
    """Responses on their way to one client, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, response: Item) -> None:
        """Add a response."""
        self._waiting.append(response)
        self._wake.set()

    def take(self) -> Item | None:
        """Take the next response, if it is there."""
        return self._waiting.popleft() if self._waiting else None

    def end(self) -> None:
        """Nothing more is added."""
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yield responses until the end."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._ended:
                return
            self._wake.clear()
            await self._wake.wait()


class InputWindow:
    """The input of a call that its sandbox has not taken: while that is much, its client's stream is not read."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._room = asyncio.Event()
        self._ended = False

    @property
    def filling(self) -> bool:
        """Whether it has to be known what the sandbox took."""
        return self._bytes > _MOST_INPUT // 2

    async def add(self, item: pb.Input) -> None:
        """Wait until there is room for an input, and count it."""
        while self._bytes > _MOST_INPUT and not self._ended:
            self._room.clear()
            await self._room.wait()
        self._sent.append((item.sequence, len(item.data)))
        self._bytes += len(item.data)

    def free(self, batch: pb.CallEventBatch) -> None:
        """Forget what the sandbox took, and after a broken link what was lost with it: its client sends it again."""
        taken = batch.input_taken_sequence
        while self._sent and (self._sent[0][0] <= batch.input_ack_sequence or taken):
            self._bytes -= self._sent.popleft()[1]
        self._room.set()

    def end(self) -> None:
        """Wake waiting writers: the call is over."""
        self._ended = True
        self._room.set()


class CallFollower:
    """The caller of one call on a separate stream."""

    def __init__(self, *, gives_credit: bool) -> None:
        self._outbox: ResponseOutbox[tuple[Relay, bytes, int]] = ResponseOutbox()
        self._gives_credit = gives_credit
        self.input = InputWindow()

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        """Queue a response."""
        if self.input.filling:
            self.input.free(pb.OpenCallResponse.FromString(response).batch)
        self._outbox.put((call, response, last_sequence))

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        """End the stream."""
        self.input.end()
        self._outbox.end()

    async def write_all(self, context: Context) -> None:
        """Write responses as the client takes them, giving the agent credit for more.

        Raises:
            SandmeshError: What the call was refused with.
        """
        async for relay, response, last_sequence in self._outbox:
            error = _refused(response) if not last_sequence else None
            if error is not None:
                raise error
            await context.write(response)
            if self._gives_credit:
                relay.acknowledge(last_sequence, keep=True)  # what is written may be lost on its way


def _refused(response: bytes) -> SandmeshError | None:
    # Only batches without an event get here, so nothing of a call's data is parsed.
    batch = pb.RunCallResponse.FromString(response).batch
    return from_detail(batch.error) if batch.HasField("error") else None


def handlers(calls: Calls) -> grpc.GenericRpcHandler:
    """Return the methods of CallService as gRPC wants them, streams of bytes unparsed."""
    streams: dict[str, tuple[Any, Any, Any]] = {
        "Multiplex": (grpc.stream_stream_rpc_method_handler, calls.multiplex, pb.MultiplexRequest),
        "RunCall": (grpc.unary_stream_rpc_method_handler, calls.run_call, pb.RunCallRequest),
        "OpenCall": (grpc.stream_stream_rpc_method_handler, calls.open_call, pb.OpenCallRequest),
        "AttachCall": (grpc.unary_stream_rpc_method_handler, calls.attach_call, pb.AttachCallRequest),
    }
    unary: dict[str, tuple[Any, Any]] = {
        "SendInput": (calls.send_input, pb.SendInputRequest),
        "SignalCall": (calls.signal_call, pb.SignalCallRequest),
        "ResizeCall": (calls.resize_call, pb.ResizeCallRequest),
        "CancelCall": (calls.cancel_call, pb.CancelCallRequest),
        "ListTools": (calls.list_tools, pb.ListToolsRequest),
    }
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: make(behaviour, request_deserializer=request.FromString, response_serializer=bytes)
        for name, (make, behaviour, request) in streams.items()
    }
    for name, (behaviour, request) in unary.items():
        methods[name] = grpc.unary_unary_rpc_method_handler(
            behaviour, request_deserializer=request.FromString, response_serializer=lambda m: m.SerializeToString()
        )
    return grpc.method_handlers_generic_handler(NAME, methods)
