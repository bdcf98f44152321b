"""A collector of traces: an OTLP server with OpenTelemetry's own protos, which keeps what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was received."""

    service: str
    span: trace_pb2.Span
    attributes: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return self.span.name

    @property
    def trace_id(self) -> str:
        """Its trace, in hexadecimal digits."""
        return self.span.trace_id.hex()

    @property
    def span_id(self) -> str:
        """Its id, in hexadecimal digits."""
        return self.span.span_id.hex()

    @property
    def events(self) -> list[str]:
        """The names of its events."""
        return [event.name for event in self.span.events]

    @property
    def error(self) -> str:
        """The description of its status, empty where it is no error."""
        return self.span.status.message


@dataclass
class Collector(service_grpc.TraceServiceServicer):
    """What was received so far."""

    address: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def Export(  # noqa: N802 - the proto's name
        self, request: service_pb.ExportTraceServiceRequest, context: object
    ) -> service_pb.ExportTraceServiceResponse:
        """Keep the spans of a request."""
        del context
        for of_resource in request.resource_spans:
            resource = _plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                for span in of_scope.spans:
                    self.spans.append(ReceivedSpan(str(resource["service.name"]), span, _plain(span.attributes)))
        self._arrived.set()
        return service_pb.ExportTraceServiceResponse()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a program that is to send its traces here, soon after they end."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    async def wait_for(self, has: Callable[[list[ReceivedSpan]], bool]) -> list[ReceivedSpan]:
        """Wait until what was received is enough."""
        try:
            async with asyncio.timeout(30):
                while not has(self.spans):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise AssertionError(f"received {[(span.service, span.name) for span in self.spans]}") from None
        return self.spans

    def below(self, span: ReceivedSpan) -> list[ReceivedSpan]:
        """Return the spans whose parent is another, in the order of their starts."""
        found = [received for received in self.spans if received.span.parent_span_id == span.span.span_id]
        return sorted(found, key=lambda one: one.span.start_time_unix_nano)

    def tree(self, span: ReceivedSpan) -> Any:
        """Return a span's name and service, with those below it: what a person sees of a trace."""
        below = [self.tree(one) for one in self.below(span)]
        label = f"{span.service}: {span.name}"
        return {label: below} if below else label


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, str(attribute.value.WhichOneof("value"))) for attribute in attributes
    }


@asynccontextmanager
async def open_collector() -> AsyncGenerator[Collector]:
    """Serve a collector on a free port of this machine until the block ends."""
    server, collector = grpc.aio.server(), Collector()
    cast("Any", service_grpc).add_TraceServiceServicer_to_server(collector, server)  # its stubs have no types
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)
