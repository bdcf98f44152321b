"""Messages of Jupyter's kernels, as WebSockets carry them.

They are those of https://jupyter-client.readthedocs.io/en/stable/messaging.html, in the forms of
https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html: JSON, or `v1` where a client offers
it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, cast

from pydantic_core import from_json

V1: Final = "v1.kernel.websocket.jupyter.org"
"""The subprotocol of the binary form; without it messages are JSON."""

LARGEST: Final = 4 << 20
"""Bytes of a client's largest message."""

VERSION: Final = "5.3"
_CHANNELS: Final = frozenset({"shell", "control", "stdin", "iopub"})
_MOST_PARTS: Final = 1_000
_MOST_NAME: Final = 1_000


class MessageError(Exception):
    """What a client sent is not a message."""


@dataclass(frozen=True)
class NotebookMessage:
    """A message of a client."""

    channel: str
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def kind(self) -> str:
        """What it requests, such as "execute_request"."""
        return str(self.header["msg_type"])

    def text(self, name: str) -> str:
        """Return a text of its content; "" where it has none."""
        found = self.content.get(name)
        return found if isinstance(found, str) else ""

    def number(self, name: str) -> int:
        """Return a number of its content; 0 where it has none."""
        found = self.content.get(name)
        return found if isinstance(found, int) else 0

    def flag(self, name: str, default: bool) -> bool:
        """Return a flag of its content."""
        found = self.content.get(name)
        return found if isinstance(found, bool) else default


@dataclass(frozen=True)
class Outgoing:
    """A message to clients."""

    channel: str
    kind: str
    content: Mapping[str, Any]
    parent: Mapping[str, Any]
    """The header of the request that it belongs to; empty where none is."""
    session: str

    def fields(self) -> dict[str, Any]:
        """Return its parts by their names."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": self.kind,
            "username": "sandmesh",
            "session": self.session,
            "date": datetime.now(UTC).isoformat(),
            "version": VERSION,
        }
        return {"header": header, "parent_header": self.parent, "metadata": {}, "content": self.content}

    def text(self) -> str:
        """Return it as JSON."""
        fields = self.fields()
        header = fields["header"]
        more = {"msg_id": header["msg_id"], "msg_type": self.kind, "channel": self.channel, "buffers": list[str]()}
        return _json({**fields, **more})

    def binary(self) -> bytes:
        """Return it in the form v1."""
        parts = [self.channel.encode(), *(_json(part).encode() for part in self.fields().values())]
        offsets = [8 * (len(parts) + 2)]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        return b"".join([number.to_bytes(8, "little") for number in (len(offsets), *offsets)] + parts)


def read_message(data: str | bytes, protocol: str | None) -> NotebookMessage:
    """Return a client's message; the buffers of one that has some are left out.

    Raises:
        MessageError: It is something else.
    """
    try:
        if isinstance(data, str):
            return _of_fields(from_json(data, allow_inf_nan=False))
        if protocol == V1:
            return _of_parts(data)
        return _of_fields(from_json(_first_part(data), allow_inf_nan=False))
    except (ValueError, IndexError) as error:
        raise MessageError(f"this is not a message of Jupyter's: {error}"[:100]) from None


def _of_fields(found: object) -> NotebookMessage:
    fields = _object(found, "message")
    header = _object(fields.get("header"), "header")
    channel = fields.get("channel", "shell")
    return _checked(channel, header, _object(fields.get("content", {}), "content"))


def _of_parts(data: bytes) -> NotebookMessage:
    offsets = _offsets(data, 8, "little")
    parts = [data[begin:end] for begin, end in pairwise(offsets)]
    channel, header, _, _, content = parts[0], parts[1], parts[2], parts[3], parts[4]
    read = [_object(from_json(part, allow_inf_nan=False), "part") for part in (header, content)]
    return _checked(channel.decode(), *read)


def _first_part(data: bytes) -> bytes:
    """Return the JSON of a message with buffers."""
    offsets = [*_offsets(data, 4, "big"), len(data)]
    return data[offsets[0] : offsets[1]]


def _offsets(data: bytes, width: int, order: Any) -> list[int]:
    count = int.from_bytes(data[:width], order)
    if not 1 <= count <= _MOST_PARTS or len(data) < width * (count + 1):
        raise ValueError("it has no offsets of its parts")
    offsets = [int.from_bytes(data[width * at : width * (at + 1)], order) for at in range(1, count + 1)]
    if any(begin > end for begin, end in pairwise([0, *offsets, len(data)])):
        raise ValueError("its offsets are not those of parts")
    return offsets


def _checked(channel: object, header: dict[str, Any], content: dict[str, Any]) -> NotebookMessage:
    kind = header.get("msg_type")
    if not isinstance(channel, str) or channel not in _CHANNELS:
        raise ValueError("its channel is unknown")
    if not isinstance(kind, str) or not isinstance(header.get("msg_id"), str) or len(kind) > _MOST_NAME:
        raise ValueError("its header has no msg_type and msg_id")
    return NotebookMessage(channel, header, content)


def _object(found: object, name: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"its {name} is not an object")  # noqa: TRY004 - all that is wrong with a message
    return cast("dict[str, Any]", found)


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        # What sandboxes display may have numbers that browsers do not read.
        return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))
