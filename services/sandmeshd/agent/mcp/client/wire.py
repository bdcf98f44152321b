"""What agent and host say to each other over their socket pair.

A frame is the length of its head and that of its body (four bytes each, most significant first), the head, which is a
JSON object, and the body. To the host, by `op`:
  open (session, transport, url, headers): its pipes, where it has some, came on the other socket before;
  close (session); call (session, call, tool; body: the arguments); cancel (call);
  took (call): the last block that `waits` has its place.
From the host:
  up; for a session: opened or listing (body: its tools and problems), failed, closed, problem (a text each),
    and `fault` where the server did what it may not;
  for a call: progress [done, total, text], block (body) and perhaps `waits`, end with `is_error`, `message`, `lost`
  (the session ended) and the structured result as body.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, cast

from sandmeshd.agent.userland import frames

HEADER: Final = struct.Struct("!II")
MOST_HEAD: Final = 256 << 10
MOST_BODY: Final = frames.MAX_PAYLOAD
"""The most bytes of a body from the host: a block must fit a frame of the agent's link."""
MOST_AHEAD: Final = 1 << 20
"""How many bytes of a call's blocks the host sends before it waits for each."""


class BrokenFrame(Exception):
    """What came is no frame."""


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Give a frame's bytes."""
    data = json.dumps(head).encode()
    return HEADER.pack(len(data), len(body)) + data + body


def read_head(data: bytes) -> dict[str, Any]:
    """Read a head.

    Raises:
        BrokenFrame: It is no JSON object.
    """
    try:
        head: object = json.loads(data)
    except (ValueError, RecursionError):
        raise BrokenFrame("the head of a frame is no JSON") from None
    if not isinstance(head, dict):
        raise BrokenFrame("the head of a frame is no object")
    return cast("dict[str, Any]", head)


class Cutter:
    """Cuts frames from the bytes of somebody who is not trusted."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Take bytes and give the frames that are whole.

        Raises:
            BrokenFrame: What comes is no frame, or one that is too large.
        """
        self._buffer += data
        cut: list[tuple[dict[str, Any], bytes]] = []
        at = 0
        while len(self._buffer) - at >= HEADER.size:
            head, body = HEADER.unpack_from(self._buffer, at)
            if head > MOST_HEAD or body > MOST_BODY:
                raise BrokenFrame("a frame is too large")
            start = at + HEADER.size
            if len(self._buffer) < start + head + body:
                break
            view = memoryview(self._buffer)
            cut.append((read_head(bytes(view[start : start + head])), bytes(view[start + head : start + head + body])))
            view.release()
            at = start + head + body
        del self._buffer[:at]
        return cut
