"""One connection from inside a sandbox: a CONNECT, or one request in absolute form, parsed strictly and rewritten.

What a program sends is untrusted. h11 reads it, so nothing that can be read in two ways gets through, and the request
that leaves is made of what was read: its Host is the target's, whatever the program wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import h11

from sandmeshd.drivers.egress.http_forward import Forward
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.secrets.relay import HostFailure
from sandmeshd.drivers.egress.secrets.termination import Termination
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import ProxyStream
from sandmeshd.drivers.egress.targets import read_authority, read_url
from sandmeshd.drivers.egress.upstream.dialer import Dialer, TargetUnreachable
from sandmeshd.drivers.egress.upstream.tunnels import tunnel

HEAD_BYTES = 16 * 1024
_PHRASE = 200
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

Report = Callable[[EgressRefused], None]


class Exchange:
    """Serves one connection to its end."""

    def __init__(
        self,
        stream: ProxyStream,
        dialer: Dialer,
        termination: Termination | None,
        settings: EgressSettings,
        report: Report,
    ) -> None:
        self._stream = stream
        self._dialer = dialer
        self._termination = termination
        self._settings = settings
        self._report = report
        self._inside = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._tunnelled = False

    async def serve(self) -> None:
        """Answer the request that the program makes; it has the connection for itself."""
        try:
            await self._serve()
        except EgressRefused as refusal:
            self._report(refusal)
            await self._answer(403, refusal.reason, str(refusal))
        except (TargetUnreachable, HostFailure) as failure:
            await self._answer(502, str(failure))
        except h11.RemoteProtocolError as error:
            await self._answer(error.error_status_hint, f"the proxy cannot read this request: {error}")
        except TimeoutError:
            await self._answer(408, "nothing moved for too long")
        except (OSError, h11.LocalProtocolError):
            await self._stream.reset()

    async def refuse(self, why: str) -> None:
        """Answer that there are too many connections."""
        with suppress(OSError):
            await self._answer(503, why)

    async def _serve(self) -> None:
        async with asyncio.timeout(self._settings.head_seconds):
            request = await self._request()
        if request is None:
            await self._stream.end()
        elif request.method == b"CONNECT":
            await self._connect(request)
        else:
            resource = read_url(request.target.decode("ascii"))
            self._check_head(request, resource.target)
            outside = await self._dialer.connect(resource.target)
            forward = Forward(self._inside, self._stream, outside, self._settings.idle_seconds)
            try:
                with self._dialer.traffic.counted(resource.target, self._stream):
                    await forward.run(request, resource)
            finally:
                outside[1].close()

    async def _request(self) -> h11.Request | None:
        while (event := self._inside.next_event()) is h11.NEED_DATA:
            self._inside.receive_data(await self._stream.read())
        return event if isinstance(event, h11.Request) else None

    async def _connect(self, request: h11.Request) -> None:
        names = {name for name, _ in request.headers}
        if names & {b"content-length", b"transfer-encoding"}:
            raise h11.RemoteProtocolError("a CONNECT has no body")
        target = read_authority(request.target.decode("ascii"))
        self._check_head(request, target)
        if self._termination is not None and self._termination.secrets.covers(target):
            await self._terminate(self._termination, target)
            return
        outside = await self._dialer.connect(target)
        check = self._termination.secrets.scan(target) if self._termination else _nothing
        self._tunnelled = True
        try:
            with self._dialer.traffic.counted(target, self._stream):
                await self._stream.write(_ESTABLISHED)
                first, seconds = self._inside.trailing_data[0], self._settings.idle_seconds
                await tunnel(self._stream, outside, first, seconds, check)
        finally:
            outside[1].close()

    async def _terminate(self, termination: Termination, target: EgressTarget) -> None:
        outside = await self._dialer.connect(target)
        self._tunnelled = True
        try:
            with self._dialer.traffic.counted(target, self._stream):
                await self._stream.write(_ESTABLISHED)
                first = self._inside.trailing_data[0]
                await termination.serve(self._stream, first, target, outside, self._dialer.connect)
        except EgressRefused as refusal:
            self._report(refusal)
            # The program was answered inside of TLS, and is to read that.
            await self._stream.end()
        finally:
            outside[1].close()

    def _check_head(self, request: h11.Request, target: EgressTarget) -> None:
        if self._termination is not None:
            fields = (part for header in request.headers for part in header)
            self._termination.secrets.check(target, b"\n".join((request.target, *fields)))

    async def _answer(self, status: int, reason: str, text: str = "") -> None:
        # Most clients show only the line of a refused CONNECT, so the line says why.
        phrase = reason.encode("ascii", "replace")[:_PHRASE].decode("ascii")
        if self._tunnelled or self._inside.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            await self._stream.reset()
            return
        body = f"sandmesh: {text or reason}\n".encode()
        headers = [
            *("Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}"),
            *("X-Sandmesh-Egress: refused" if status == 403 else "X-Sandmesh-Egress: failed", "Connection: close"),
            *(("Retry-After: 5",) if status == 503 else ()),
        ]
        head = "\r\n".join((f"HTTP/1.1 {status} {_plain(phrase)}", *headers, "", ""))
        with suppress(OSError):
            await self._stream.write(head.encode() + body)
            await self._stream.end()


def _nothing(data: bytes) -> None:
    del data


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
