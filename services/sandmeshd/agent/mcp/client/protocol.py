"""The protocol of an agent and the process that speaks MCP, over their socket pair.

A message is the length of its head in four bytes, most significant first, the head, which is a JSON object, and the
body. To the process, by `op`:
  open (session, transport, url, headers, capabilities): its pipes, where it has some, came on the other socket before;
  close (session); call (session, call, tool; body: the arguments); cancel (call);
  request (session, call, method; body: its params): a request of any other kind;
  took (call): the last block or part that `waits` has its place;
  reply (session, request; body: `result` or `error`).
From the process:
  up; for a session: opened or listing (body: its tools and problems), failed, closed, problem (a text each),
    and `fault` where the server broke a rule; message (a method; body: its params) is a notification of the server,
    with `request`, a number, a request of the server; cancelled is such a number;
  for a call: progress [done, total, text], block (body) and perhaps `waits`, end with `is_error`, `message`, `lost`
  (the session ended) and the structured result as body; for a request: part (body: some of its result) and perhaps
  `waits`, end likewise and with the `code` of an error.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Final, cast

from sandmesh.shared import frames
from sandmeshd.agent.userland.python import kernel_protocol

MAX_HEAD: Final = 256 << 10
MAX_MESSAGE: Final = kernel_protocol.MAX_PAYLOAD
"""The most bytes of a message from the process: a block must fit a message of the agent's link."""
MAX_AHEAD: Final = 1 << 20
"""How many bytes of a call's blocks the process sends before it waits for each."""
CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What no name of a tool may have: control characters, ends of lines, and marks that change the order of a text."""

_LENGTH: Final = struct.Struct("!I")


class InvalidMessage(Exception):
    """A peer sent what the protocol does not allow."""


def pack(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the frame of a message."""
    data = json.dumps(head).encode()
    return frames.prefix(_LENGTH.size + len(data) + len(body)) + _LENGTH.pack(len(data)) + data + body


def unpack(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the head and body of a message from a peer that is not trusted.

    Raises:
        InvalidMessage: The head is not a JSON object, or is too large.
    """
    size: int = _LENGTH.unpack_from(message)[0] if len(message) >= _LENGTH.size else MAX_HEAD + 1
    end = _LENGTH.size + size
    if size > MAX_HEAD or end > len(message):
        raise InvalidMessage("the head of a message is incomplete or too large")
    return _read_head(message[_LENGTH.size : end]), message[end:]


def _read_head(data: bytes) -> dict[str, Any]:
    try:
        head: object = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidMessage("the head of a message is not JSON") from None
    if not isinstance(head, dict):
        raise InvalidMessage("the head of a message is not an object")
    return cast("dict[str, Any]", head)
