"""Results that are larger than one message to a client: a preview, and links to parts that are read as resources.

Clients bound what they take as one event of a stream; the official one takes 1 MiB.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from mcp import MCPError, types

from sandmesh.shared.numbers import decimal
from sandmeshd.facades.mcp.failures import RESOURCE_NOT_FOUND

SCHEME = "result:///"
HEADROOM = 16 << 10
"""Bytes of a message that its envelope, previews and links may take."""
KEPT_BYTES = 128 << 20
"""How much of the results is kept for a session; older ones are dropped for newer ones."""
PREVIEW = 2_000
"""Characters shown of each end of a text."""
MOST_LINKS = 32
UNBOUNDED_PART = 1 << 20
"""Bytes of a part for clients whose messages have no bound."""
_PLAIN = "text/plain"


@dataclass(frozen=True)
class _Stored:
    mime_type: str
    parts: tuple[str, ...]
    """Text, or base64 of bytes, each small enough for a message."""
    is_text: bool

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class LargeResults:
    """The large results of one session. `largest` is the most bytes of a message; 0: unlimited."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._stored: OrderedDict[str, _Stored] = OrderedDict()

    @property
    def part_bytes(self) -> int:
        """The most bytes of content in one message, 0 for no bound."""
        return max(self._largest - HEADROOM, 1 << 10) if self._largest else 0

    def shorten(self, result: types.CallToolResult) -> types.CallToolResult:
        """Return a result that fits into one message: blocks that do not become a preview with links."""
        if not self._largest or _size(result) <= self.part_bytes:
            return result
        content: list[types.ContentBlock] = []
        room = self.part_bytes // 2
        for block in result.content:
            size = len(block.model_dump_json())
            shown = [block] if size <= room else self._replace(block)
            room -= sum(len(one.model_dump_json()) for one in shown)
            content += shown
        shortened = result.model_copy(update={"content": content})
        return shortened if _size(shortened) <= self.part_bytes else _without_structure(shortened)

    def keep_text(self, text: str, mime_type: str = _PLAIN) -> list[types.ContentBlock]:
        """Keep a text, and return links to its parts."""
        return self._keep(_Stored(mime_type, tuple(_split(text, self.part_bytes or UNBOUNDED_PART)), is_text=True))

    def read(self, uri: str) -> types.ReadResourceResult:
        """Return a part of a result.

        Raises:
            MCPError: It is not kept, or no longer.
        """
        key, _, number = uri.removeprefix(SCHEME).partition("/")
        stored = self._stored.get(key)
        place = decimal(number, len(stored.parts)) if stored is not None else None
        if stored is None or not place:
            kept = f"results are kept until {KEPT_BYTES >> 20} MiB of newer ones came, and as long as their session"
            raise MCPError(RESOURCE_NOT_FOUND, f"{uri} is not there: {kept}")
        part = stored.parts[place - 1]
        if stored.is_text:
            contents = types.TextResourceContents(uri=uri, mime_type=stored.mime_type, text=part)
            return types.ReadResourceResult(contents=[contents])
        return types.ReadResourceResult(
            contents=[types.BlobResourceContents(uri=uri, mime_type=stored.mime_type, blob=part)]
        )

    def _replace(self, block: types.ContentBlock) -> list[types.ContentBlock]:
        if isinstance(block, types.TextContent):
            stored = _Stored(_PLAIN, tuple(_split(block.text, self.part_bytes)), is_text=True)
            links = self._keep(stored)
            preview = f"{block.text[:PREVIEW]}\n[...]\n{block.text[-PREVIEW:]}\n{_explain('text', stored)}"
            return [block.model_copy(update={"text": preview}), *links]
        if isinstance(block, types.ImageContent | types.AudioContent):
            step = self.part_bytes // 4 * 4  # a whole number of bytes is in four characters of base64
            parts = tuple(block.data[at : at + step] for at in range(0, len(block.data), step))
            stored = _Stored(block.mime_type, parts, is_text=False)
        else:
            stored = _Stored("application/json", tuple(_split(block.model_dump_json(), self.part_bytes)), is_text=True)
        return [types.TextContent(text=_explain(block.type, stored)), *self._keep(stored)]

    def _keep(self, stored: _Stored) -> list[types.ContentBlock]:
        key = secrets.token_urlsafe(9)
        self._stored[key] = stored
        while len(self._stored) > 1 and sum(one.size for one in self._stored.values()) > KEPT_BYTES:
            self._stored.popitem(last=False)
        return [
            types.ResourceLink(
                name=f"result part {number} of {len(stored.parts)}",
                uri=f"{SCHEME}{key}/{number}",
                mime_type=stored.mime_type,
                size=len(part),
            )
            for number, part in enumerate(stored.parts[:MOST_LINKS], 1)
        ]


def _explain(what: str, stored: _Stored) -> str:
    count = len(stored.parts)
    more = f"; the links name the first {MOST_LINKS}" if count > MOST_LINKS else ""
    encoding = "" if stored.is_text else " of base64"
    return (
        f"[This {what} has {stored.size} characters{encoding}, more than one message may have. It is kept whole in "
        f"{count} resources, the last number of whose URIs is the part{more}.]"
    )


def _without_structure(result: types.CallToolResult) -> types.CallToolResult:
    note = types.TextContent(text="[The structured result was left out: it is larger than one message may be.]")
    return result.model_copy(update={"content": [*result.content, note], "structured_content": None, "is_error": True})


def _size(result: types.CallToolResult) -> int:
    return len(result.model_dump_json().encode())


def _split(text: str, most: int) -> Iterator[str]:
    """Split a text into parts that take at most so many bytes as a string of JSON."""
    start = 0
    while start < len(text):
        end = min(start + most, len(text))
        while (size := _json_bytes(text[start:end])) > most:
            end = start + max((end - start) * most // (size + 1), 1)
            if end == start + 1:
                break
        yield text[start:end]
        start = end


def _json_bytes(text: str) -> int:
    return len(types.TextContent(text=text).model_dump_json().encode())
