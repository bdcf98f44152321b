"""A stream of HTTP/2 as a connection of HTTP/1.1, so that one server answers both.

aiohttp's server speaks only HTTP/1.1. Each stream has its own protocol, to which its request is written as
RFC 9112 has it, and whose response is read back from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web

Headers = Sequence[tuple[str, str]]

LARGEST_HEAD: Final = 128 << 10
_HIGH: Final = 256 << 10
_LOW: Final = 64 << 10
_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "expect"}
)
"""What is said about a connection, which streams have not: RFC 9113, 8.2.2."""


class BadResponse(Exception):
    """The server wrote what is not a response."""


class ResponseReader:
    """Reads a response of HTTP/1.1 as its server writes it: whole heads, then a body with a length or in chunks."""

    def __init__(self, *, bodiless: bool) -> None:
        self._bodiless = bodiless
        self.headers: Headers | None = None
        """Once the head is there."""
        self.ended = False
        self._rest = bytearray()
        self._left: int | None = None
        self._chunked = False

    @property
    def is_bounded(self) -> bool:
        """Whether the body says by itself where it ends."""
        return self._chunked or self._left is not None

    def feed(self, data: bytes) -> bytes:
        """Take what was written, and return what of it is of the body.

        Raises:
            BadResponse: It is not a response.
        """
        self._rest += data
        body = bytearray()
        while self._rest and not self.ended:
            if self.headers is None:
                if not self._head():
                    break
            elif self._chunked and not self._left:
                if not self._chunk():
                    break
            else:
                size = len(self._rest) if self._left is None else min(len(self._rest), self._left)
                body += self._rest[:size]
                del self._rest[:size]
                self._count(size)
        return bytes(body)

    def _count(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            self.ended = not self._left and not self._chunked

    def _head(self) -> bool:
        head, found, _ = bytes(self._rest[:LARGEST_HEAD]).partition(b"\r\n\r\n")
        if not found:
            if len(self._rest) >= LARGEST_HEAD:
                raise BadResponse("its head is too large")
            return False
        del self._rest[: len(head) + 4]
        first, *lines = head.decode("utf-8", "surrogateescape").split("\r\n")
        status = first.split(" ")[1]
        if status.startswith("1"):
            return True
        pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        known = dict(pairs)
        self._chunked = known.get("transfer-encoding", "").lower() == "chunked"
        length = known.get("content-length")
        self._left = 0 if self._chunked else int(length) if length is not None else None
        self.headers = [(":status", status), *(pair for pair in pairs if pair[0] not in _CONNECTION)]
        self.ended = self._bodiless or (self._left == 0 and not self._chunked)
        return True

    def _chunk(self) -> bool:
        """Read the line before a chunk; one follows the last chunk, too."""
        line, found, _ = bytes(self._rest[:1024]).partition(b"\r\n")
        if not found:
            return False
        del self._rest[: len(line) + 2]
        if not line:
            return True
        self._left = int(line.partition(b";")[0], 16)
        if self._left == 0:
            self.ended = True
        return True


def request_head(headers: Headers) -> tuple[bytes, bool]:
    """Return the head of a request of HTTP/1.1, and whether its body is to be sent in chunks.

    Raises:
        ValueError: A header would be more than one there.
    """
    pseudo = {name: value for name, value in headers if name.startswith(":")}
    plain = [(name, value) for name, value in headers if not name.startswith(":") and name not in _CONNECTION]
    host = pseudo.get(":authority") or dict(plain).get("host", "")
    chunked = "content-length" not in dict(plain)
    lines = [f"{pseudo.get(':method', '')} {pseudo.get(':path', '')} HTTP/1.1", f"host: {host}"]
    lines += [f"{name}: {value}" for name, value in plain if name not in ("host", "cookie")]
    # A client may send each of its cookies by itself: RFC 9113, 8.2.3.
    cookies = "; ".join(value for name, value in plain if name == "cookie")
    lines += [f"cookie: {cookies}"] if cookies else []
    lines += ["transfer-encoding: chunked"] if chunked else []
    lines += ["connection: close"]
    if any(sign in line for line in lines for sign in "\r\n\0"):
        raise ValueError("a header has the end of a line in it")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape"), chunked


class StreamTransport(asyncio.Transport):
    """What a protocol of the server writes to and closes: one stream's response."""

    def __init__(
        self,
        outer: asyncio.BaseTransport,
        wake: Callable[[], None],
        consumed: Callable[[int], None],
        *,
        bodiless: bool,
    ) -> None:
        super().__init__()
        self.reader = ResponseReader(bodiless=bodiless)
        self.body = bytearray()
        """What is to be sent yet."""
        self.closed = False
        self.failed = False
        self.protocol: web.RequestHandler | None = None
        self._outer = outer
        self._wake = wake
        self._consumed = consumed
        self._held: int | None = None
        self._writing_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection: who is at its other end, and its TLS."""
        return self._outer.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        """Take a part of the response."""
        if self.closed:
            return
        try:
            self.body += self.reader.feed(bytes(data))
        except (BadResponse, ValueError, IndexError):
            self.abort()
            return
        if len(self.body) > _HIGH and not self._writing_paused and self.protocol is not None:
            self._writing_paused = True
            self.protocol.pause_writing()
        self._wake()

    def sent(self, size: int) -> None:
        """Forget what was sent."""
        del self.body[:size]
        if self._writing_paused and len(self.body) < _LOW and self.protocol is not None:
            self._writing_paused = False
            self.protocol.resume_writing()

    def received(self, size: int) -> None:
        """Count what was handed to the protocol; its client may send as much again once that reads."""
        if self._held is None:
            self._consumed(size)
        else:
            self._held += size

    def pause_reading(self) -> None:
        """Pause the client: it sends no more than its window allows."""
        self._held = self._held or 0

    def resume_reading(self) -> None:
        """Resume the client."""
        held, self._held = self._held, None
        if held:
            self._consumed(held)

    def is_reading(self) -> bool:
        """Return whether the client may send."""
        return self._held is None

    def is_closing(self) -> bool:
        """Return whether the response is whole, or given up."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """Return how much is to be sent yet."""
        return len(self.body)

    def close(self) -> None:
        """End the response: a body without a length ends so; one that lacks a part of its length is cut off."""
        if not self.closed:
            self.closed = True
            self.failed = self.reader.headers is None or (not self.reader.ended and self.reader.is_bounded)
            self._wake()

    def abort(self) -> None:
        """Cut the response off."""
        if not self.closed:
            self.closed = self.failed = True
            self._wake()
