"""The span of an HTTP request whose client names its trace: what is done for it becomes a part of that."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from sandmesh.shared.traces.context import TRACEPARENT, TRACESTATE, read_trace, span_of
from sandmeshd.runtime.rpc.traces import note_trace


@web.middleware
async def traced_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serve a request; one for a WebSocket has no span, since how long that is open says nothing."""
    remote = read_trace(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE, ""))
    if remote is None or "Upgrade" in request.headers:
        return await handler(request)
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "*"
    attributes = {"http.request.method": request.method, "http.route": route}
    with span_of(f"{request.method} {route}", "SERVER", attributes, remote=remote) as span:
        note_trace()
        response = await handler(request)
        if span is not None:
            span.set_attribute("http.response.status_code", response.status)
        return response
