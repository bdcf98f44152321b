"""Carries one plain HTTP request to its host and the answer back, each parsed and rewritten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import h11

from sandmeshd.drivers.egress.streams import PIECE_BYTES, ProxyStream
from sandmeshd.drivers.egress.targets import Resource
from sandmeshd.drivers.egress.upstream.outlets import Connection
from sandmeshd.drivers.egress.upstream.tunnels import Idle, ended

HEAD_BYTES = 64 * 1024
_OURS = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"host"),
    }
)
"""Headers that are of one connection only, and those that are rewritten."""

Headers = list[tuple[bytes, bytes]]


class Forward:
    """One request between the program inside and a host that was cleared."""

    def __init__(self, inside: h11.Connection, stream: ProxyStream, outside: Connection, idle_seconds: float) -> None:
        self._inside = inside
        self._stream = stream
        self._reader, self._writer = outside
        self._outside = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._idle_seconds = idle_seconds

    async def run(self, request: h11.Request, resource: Resource) -> None:
        """Send the request, and at the same time give back what comes.

        Raises:
            OSError: One of the two is gone, or nothing moved for too long (TimeoutError).
            h11.RemoteProtocolError: One of the two does not speak HTTP.
        """
        async with Idle(self._idle_seconds) as idle:
            sending = asyncio.create_task(self._send(request, resource, idle))
            answering = asyncio.create_task(self._answer(idle))
            try:
                await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
                # A host may answer before it has read everything, and then read no more.
                await answering
            finally:
                await ended([sending, answering])
        await self._stream.end()

    async def _send(self, request: h11.Request, resource: Resource, idle: Idle) -> None:
        # Who is gone is found out by what reads of it or writes to it in the other direction.
        with suppress(OSError):
            await self._send_all(request, resource, idle)

    async def _send_all(self, request: h11.Request, resource: Resource, idle: Idle) -> None:
        path = resource.path.encode("ascii")
        headers = _kept(request.headers) + _framing(request.headers)
        headers = [(b"Host", _host(resource)), *headers, (b"Connection", b"close")]
        await self._pass_on(h11.Request(method=request.method, target=path, headers=headers))
        while True:
            event = self._inside.next_event()
            if event is h11.NEED_DATA:
                self._inside.receive_data(await self._stream.read())
                idle.touch()
            elif isinstance(event, h11.Data | h11.EndOfMessage):
                await self._pass_on(h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event)
                if isinstance(event, h11.EndOfMessage):
                    return
            else:
                return

    async def _pass_on(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._outside.send(event) or b"")
        await self._writer.drain()

    async def _answer(self, idle: Idle) -> None:
        while True:
            event = self._outside.next_event()
            if event is h11.NEED_DATA:
                self._outside.receive_data(await self._reader.read(PIECE_BYTES))
                idle.touch()
                continue
            if not isinstance(event, h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage):
                return
            await self._give(event)
            if isinstance(event, h11.EndOfMessage):
                return

    async def _give(self, event: h11.Event) -> None:
        if isinstance(event, h11.InformationalResponse):
            # Only what lets the program go on; a change of protocol is for CONNECT.
            if event.status_code != 100:
                return
        elif isinstance(event, h11.Response):
            headers = [*_kept(event.headers), *_framing(event.headers), (b"Connection", b"close")]
            event = h11.Response(status_code=event.status_code, reason=event.reason, headers=headers)
        elif isinstance(event, h11.EndOfMessage):
            event = h11.EndOfMessage()
        await self._stream.write(self._inside.send(event) or b"")


def _host(resource: Resource) -> bytes:
    shown = str(resource.target)
    return shown.removesuffix(":80").encode("ascii")


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    listed = b",".join(value for name, value in headers if name == b"connection")
    dropped = _OURS | {part.strip().lower() for part in listed.split(b",")} | {b"content-length"}
    return [(name, value) for name, value in headers if name not in dropped]


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    # Both together are one way to make two readers disagree: the one that h11 went by is the one that leaves.
    if any(name == b"transfer-encoding" for name, _ in headers):
        return [(b"Transfer-Encoding", b"chunked")]
    return [(name, value) for name, value in headers if name == b"content-length"][:1]
