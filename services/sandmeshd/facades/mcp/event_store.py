"""The latest events of one MCP session, for a client that resumes a stream by its last event's id.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage

MOST_BYTES = 16 << 20
MOST_EVENTS = 1_000


@dataclass(frozen=True)
class _Event:
    number: int
    stream: str
    message: JSONRPCMessage | None
    size: int


class RecentEvents(EventStore):
    """Keeps events within a bound; what was dropped cannot be resumed."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._events: deque[_Event] = deque()
        self._bytes = 0
        self._count = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event and return its id."""
        self._count += 1
        size = 0 if message is None else len(message.model_dump_json(by_alias=True, exclude_unset=True))
        self._events.append(_Event(self._count, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MOST_EVENTS or (self._bytes > self._most_bytes and len(self._events) > 1):
            self._bytes -= self._events.popleft().size
        return str(self._count)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event on its stream; None if the event is not kept."""
        last = next((one for one in self._events if str(one.number) == last_event_id), None)
        if last is None:
            return None
        for event in list(self._events):
            if event.stream == last.stream and event.number > last.number and event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return last.stream
