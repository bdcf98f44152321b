"""HTTP/1.1 between a program inside and a secret's host, one request after the other, each parsed and rewritten.

Bodies pass in pieces, in both directions; nothing waits for a whole one. A WebSocket's bytes pass as they are once the
host agreed to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import h11

from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.secrets.mask import FrameMask, Mask
from sandmeshd.drivers.egress.secrets.table import TLS_PORT, Headers, SecretTable
from sandmeshd.drivers.egress.secrets.tls import TlsChannel
from sandmeshd.drivers.egress.upstream.tunnels import Idle, ended

HEAD_BYTES = 64 * 1024
_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te"),
        *(b"trailer", b"transfer-encoding", b"content-length", b"upgrade", b"host"),
    }
)
_PREFACE = b"PRI * HTTP/2"

Event = h11.Request | h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage
Dial = Callable[[], Awaitable[TlsChannel]]


class HostFailure(Exception):
    """A host does not answer as TLS or HTTP want; the text says how."""


class SecretRelay:
    """The requests of one connection from inside."""

    def __init__(self, inside: TlsChannel, target: EgressTarget, secrets: SecretTable, dial: Dial) -> None:
        self._channel = inside
        self._target = target
        self._secrets = secrets
        self._dial = dial
        self._inside = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._host: _HostConnection | None = None
        self._begun = False

    async def run(self, proving: asyncio.Task[TlsChannel], idle_seconds: float) -> None:
        """Serve requests until one of the two has enough; `proving` returns the first connection to the host.

        Raises:
            Refused: A request has what its target must not get; the program was answered.
            OSError: One of the two is gone, or nothing moved for too long (TimeoutError).
        """
        try:
            # Answers and ends wait for the program, too: a limit holds for all of it.
            async with Idle(idle_seconds) as idle:
                await self._serve(proving, idle)
        finally:
            if self._host is not None:
                self._host.close()

    async def _serve(self, proving: asyncio.Task[TlsChannel], idle: Idle) -> None:
        refusal: EgressRefused | None = None
        try:
            while await self._exchange(proving, idle):
                pass
        except EgressRefused as error:
            refusal = error
            await self._answer(403, str(refusal))
        except h11.RemoteProtocolError as error:
            await self._answer(error.error_status_hint, f"the proxy cannot read this request: {error}")
        except HostFailure as failure:
            await self._answer(502, str(failure))
        await self._channel.end()
        if refusal is not None:
            raise refusal

    async def _exchange(self, proving: asyncio.Task[TlsChannel], idle: Idle) -> bool:
        request = await self._next_request(idle)
        if request is None:
            return False
        outgoing = self._outgoing(request)
        host = await self._living_host(proving)
        sending = asyncio.create_task(self._send(host, outgoing, idle))
        answering = asyncio.create_task(self._give_back(host, idle))
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            # A host may answer before it has read everything, and then read no more.
            switched = await answering
        finally:
            await ended([sending, answering])
        if switched:
            await self._pass_on(host, idle)
            return False
        if self._inside.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._inside.start_next_cycle()
        return host.start_next_cycle()

    async def _next_request(self, idle: Idle) -> h11.Request | None:
        while (event := self._inside.next_event()) is h11.NEED_DATA:
            data = await self._channel.read()
            if not self._begun and data.startswith(_PREFACE):
                reason = f"a program spoke only HTTP/2 to {self._target}, a secret's host"
                raise EgressRefused(self._target.host, self._target.port, reason, "Let it use HTTP/1.1 there.")
            self._begun = True
            self._inside.receive_data(data)
            idle.touch()
        return event if isinstance(event, h11.Request) else None

    def _outgoing(self, request: h11.Request) -> h11.Request:
        if not request.target.startswith((b"/", b"*")):
            raise h11.RemoteProtocolError("inside of TLS a request names a path, not a host")
        if request.method.upper() == b"TRACE":
            reason = f"TRACE to {self._target} would show the secret"
            raise EgressRefused(self._target.host, self._target.port, reason, "Use another method.")
        self._secrets.check_foreign(self._target, request.target)
        headers = self._secrets.filled(self._target, _kept(request))
        upgrade = _websocket(request.headers)
        if upgrade:
            # What is compressed cannot be searched for a value that comes back.
            headers = [(name, value) for name, value in headers if name.lower() != b"sec-websocket-extensions"]
        host = str(self._target).removesuffix(f":{TLS_PORT}").encode("ascii")
        headers = [(b"Host", host), *headers, *_framing(request.headers), *upgrade]
        return h11.Request(method=request.method, target=request.target, headers=headers)

    async def _living_host(self, proving: asyncio.Task[TlsChannel]) -> _HostConnection:
        # A host may close a connection that rests; nothing of this request was sent to it.
        if self._host is None:
            self._host = _HostConnection(await proving, self._target)
        elif self._host.is_gone:
            self._host = _HostConnection(await self._dial(), self._target)
        return self._host

    async def _send(self, host: _HostConnection, request: h11.Request, idle: Idle) -> None:
        # Who is gone is found out by what reads of it or writes to it in the other direction.
        with suppress(OSError):
            await host.send(request)
            while True:
                event = self._inside.next_event()
                if event is h11.NEED_DATA:
                    self._inside.receive_data(await self._channel.read())
                    idle.touch()
                elif isinstance(event, h11.Data):
                    await host.send(event)
                elif isinstance(event, h11.EndOfMessage):
                    await host.send(h11.EndOfMessage())
                    return
                else:
                    return

    async def _give_back(self, host: _HostConnection, idle: Idle) -> bool:
        """Return the answer to the program; return whether the two speak another protocol from now on."""
        mask = Mask(self._secrets.values_for(self._target))
        while True:
            event = await host.next_event(idle)
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    await self._write(_switching(event, mask))
                    return True
                if event.status_code == 100:
                    await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Response):
                await self._write(_masked(event, mask))
            elif isinstance(event, h11.Data):
                await self._write_data(mask.feed(bytes(event.data)))
            else:
                await self._write_data(mask.rest())
                await self._write(h11.EndOfMessage())
                return False

    async def _write_data(self, data: bytes) -> None:
        if data:
            await self._write(h11.Data(data=data))

    async def _write(self, event: Event) -> None:
        await self._channel.write(self._inside.send(event) or b"")

    async def _pass_on(self, host: _HostConnection, idle: Idle) -> None:
        mask = FrameMask(self._secrets.values_for(self._target))
        directions = [
            asyncio.create_task(_copy(self._channel.read, host.write, self._inside.trailing_data[0], idle)),
            asyncio.create_task(_copy(host.read, self._channel.write, host.trailing, idle, mask.feed)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(directions)

    async def _answer(self, status: int, text: str) -> None:
        if self._inside.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        body = f"sandmesh: {text}\n".encode()
        headers = [
            *((b"Content-Type", b"text/plain; charset=utf-8"), (b"Content-Length", str(len(body)).encode())),
            *((b"X-Sandmesh-Egress", b"refused" if status == 403 else b"failed"), (b"Connection", b"close")),
        ]
        with suppress(OSError, h11.LocalProtocolError):
            await self._write(h11.Response(status_code=status, headers=headers))
            await self._write(h11.Data(data=body))
            await self._write(h11.EndOfMessage())


class _HostConnection:
    """A connection to the host, from which one piece is always being read, so that its end is noticed immediately."""

    def __init__(self, channel: TlsChannel, target: EgressTarget) -> None:
        self._channel = channel
        self._target = target
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._ahead = asyncio.ensure_future(channel.read())

    @property
    def is_gone(self) -> bool:
        """Whether it ended, or spoke without being asked."""
        return self._ahead.done()

    @property
    def trailing(self) -> bytes:
        """What came after the head that changed the protocol."""
        return self._http.trailing_data[0]

    async def send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        await self._channel.write(self._http.send(event) or b"")

    async def write(self, data: bytes) -> None:
        await self._channel.write(data)

    async def read(self) -> bytes:
        data = await self._ahead
        self._ahead = asyncio.ensure_future(self._channel.read())
        return data

    async def next_event(self, idle: Idle) -> Event:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self.read())
                idle.touch()
        except h11.RemoteProtocolError as error:
            raise HostFailure(f"{self._target} gave no answer that can be read: {error}") from None
        if isinstance(event, h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage):
            return event
        raise HostFailure(f"{self._target} closed the connection without an answer")

    def start_next_cycle(self) -> bool:
        """Return whether it takes another request."""
        if self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        self._ahead.cancel()
        self._ahead.add_done_callback(lambda ahead: ahead.cancelled() or ahead.exception())


async def _copy(
    read: Callable[[], Awaitable[bytes]],
    write: Callable[[bytes], Awaitable[None]],
    first: bytes,
    idle: Idle,
    changed: Callable[[bytes], bytes] = bytes,
) -> None:
    with suppress(OSError):
        data = first or await read()
        while data:
            idle.touch()
            if passed := changed(data):
                await write(passed)
            data = await read()


def _listed(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    listed = b",".join(value for name, value in headers if name == b"connection")
    return {part.strip().lower() for part in listed.split(b",")}


def _kept(message: h11.Request | h11.InformationalResponse | h11.Response) -> Headers:
    dropped = _HOP | _listed(message.headers)
    return [(name, value) for name, value in message.headers.raw_items() if name.lower() not in dropped]


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    # Both together are one way to make two readers disagree: the one that h11 went by is the one that leaves.
    if any(name == b"transfer-encoding" for name, _ in headers):
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", value) for name, value in headers if name == b"content-length"][:1]


def _websocket(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    protocols = [value for name, value in headers if name == b"upgrade"]
    if b"upgrade" not in _listed(headers) or [value.lower() for value in protocols] != [b"websocket"]:
        return []
    return [(b"Connection", b"Upgrade"), (b"Upgrade", protocols[0])]


def _hidden(headers: Headers, mask: Mask) -> Headers:
    # Frameworks choose upper or lower case for names.
    return [(mask.whole(name, any_case=True), mask.whole(value)) for name, value in headers]


def _masked(response: h11.Response, mask: Mask) -> h11.Response:
    headers = [*_hidden(_kept(response), mask), *_framing(response.headers)]
    if b"close" in _listed(response.headers) or response.http_version < b"1.1":
        headers.append((b"Connection", b"close"))
    return h11.Response(status_code=response.status_code, reason=mask.whole(response.reason), headers=headers)


def _switching(response: h11.InformationalResponse, mask: Mask) -> h11.InformationalResponse:
    headers = [*_hidden(_kept(response), mask), *_websocket(response.headers)]
    return h11.InformationalResponse(status_code=101, reason=mask.whole(response.reason), headers=headers)
