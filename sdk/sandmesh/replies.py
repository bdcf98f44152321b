"""Bounds of what a model is sent for one call: the start and the end of the text, and a note of what was left out."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh.errors import InvalidArgument
from sandmesh.results import ToolResult

REPLY_CHARACTERS: Final = 16_000
"""The most characters of text that a model is sent for one call, unless a box or a call sets another number."""
IMAGE_BYTES: Final = 5 << 20
"""The largest image that a model is sent, which is what vendors accept."""
MOST_IMAGES: Final = 20
"""The most images of one reply."""

_PICTURES: Final = ("image", "audio")


def read_reply_characters(value: object) -> int:
    """Check a bound of replies.

    Raises:
        InvalidArgument: It is not a whole number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        what = "reply_characters is the most characters of text that a model is sent for one call"
        raise InvalidArgument(f"{what}, a whole number above 0, not {value!r}", {"argument": "reply_characters"})
    return value


def shorten_text(text: str, characters: int = REPLY_CHARACTERS, where: str = "") -> str:
    """Return a text of at most `characters`: its start and its end, with a note of what is missing between them.

    The note, which names the file `where` if there is one, is not counted.
    """
    if len(text) <= characters:
        return text
    tail = characters // 2
    head = characters - tail
    return f"{text[:head]}{_note(len(text), characters, where)}{text[len(text) - tail :]}"


@dataclass(frozen=True)
class ShortReply:
    """A result of which a model is sent a part, and the contents that were shortened, by the names of their files."""

    result: ToolResult
    files: Mapping[str, str | bytes]


def shorten_result(result: ToolResult, characters: int = REPLY_CHARACTERS, where: str = "") -> ShortReply:
    """Return a result whose text blocks together have at most `characters`, and whose images models accept.

    `where` is the path, without an ending, of the files in which the notes say that the whole is; without it they name
    none.
    """
    shortened = _Shortened(result, characters, where)
    blocks = [block for each in result.content for block in shortened.blocks(each)]
    if not shortened.files and not shortened.dropped:
        return ShortReply(result, {})
    made = ToolResult({**result, "content": blocks})
    return ShortReply(made, shortened.files)


def whole_text(result: ToolResult) -> str:
    """Return the text of all blocks, each beginning a new line."""
    return "".join(_texts(result))


def _texts(result: ToolResult) -> Iterator[str]:
    texts = [text for block in result.content if (text := _text(block)) is not None]
    for number, text in enumerate(texts):
        yield text
        if number + 1 < len(texts) and not text.endswith("\n"):
            yield "\n"


@dataclass
class _Shortened:
    """Walks over the blocks of a result, of whose text the first half of a bound and the last half stay."""

    result: ToolResult
    characters: int
    where: str
    files: dict[str, str | bytes] = field(default_factory=dict[str, "str | bytes"])
    dropped: bool = False
    _total: int = 0
    _position: int = 0
    _images: int = 0
    _noted: bool = False

    def __post_init__(self) -> None:
        self._total = sum(len(text) for block in self.result.content if (text := _text(block)) is not None)
        if self._total > self.characters:
            self.files[f"{self.where}.txt"] = whole_text(self.result)

    def blocks(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what stays of a block."""
        if block.get("type") in _PICTURES:
            yield self._picture(block)
            return
        block = self._without_large_forms(block)
        text = _text(block) or ""
        if self._total <= self.characters:
            yield block
            return
        start, self._position = self._position, self._position + len(text)
        shown = self._cut(text, start)
        if shown == text:
            yield block
        elif shown:
            known: dict[str, Any] = {name: block[name] for name in ("description", "annotations") if name in block}
            yield {"type": "text", **known, "text": shown}

    def _cut(self, text: str, start: int) -> str:
        tail = self.characters // 2
        head, resumes, end = self.characters - tail, self._total - tail, start + len(text)
        if end <= head or start >= resumes:
            return text
        first, last = text[: max(0, head - start)], text[max(0, resumes - start) :]
        note = "" if self._noted else _note(self._total, self.characters, self.where and f"{self.where}.txt")
        self._noted = True
        return f"{first}{note}{last}"

    def _picture(self, block: dict[str, Any]) -> dict[str, Any]:
        data = str(block.get("data") or "")
        size = len(data) * 3 // 4
        self._images += 1
        if size <= IMAGE_BYTES and self._images <= MOST_IMAGES:
            return block
        mime_type = str(block.get("mimeType") or "")
        try:
            decoded = base64.b64decode(data, validate=True)
        except binascii.Error:  # A program in the sandbox wrote it, and it is not an image.
            self.dropped = True
            return {"type": "text", "text": f"[{block['type']} {mime_type} of {len(data)} characters left out]"}
        name = f"{self.where}-{self._images}{mimetypes.guess_extension(mime_type) or ''}"
        self.files[name] = decoded
        place = f"; it is in {name}" if self.where else ""
        return {"type": "text", "text": f"[{block['type']} {mime_type} of {len(decoded)} bytes left out{place}]"}

    def _without_large_forms(self, block: dict[str, Any]) -> dict[str, Any]:
        """Return a block without other forms of what it shows that are larger than the reply's bound."""
        forms = block.get("annotations")
        if not forms or len(json.dumps(forms, default=str)) <= self.characters:
            return block
        self.dropped = True
        return {**block, "annotations": None}


def _text(block: Mapping[str, Any]) -> str | None:
    """Return what a model reads of a block, None for pictures."""
    kind = block.get("type")
    if kind in _PICTURES:
        return None
    return str(block.get("text", "")) if kind == "text" else json.dumps(block, default=str)


def _note(total: int, characters: int, where: str) -> str:
    place = f"; all {total} characters are in {where}" if where else f" of {total} characters"
    return f"\n[{total - characters} characters left out{place}]\n"
