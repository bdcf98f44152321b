"""The content blocks of a result: one that is too long for a frame is split into pieces that belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_MAX_TEXT: Final = 256 << 10
_MAX_DATA: Final = 1 << 20
MAX_RESULT: Final = 64 << 20
"""The most bytes of all blocks of a result."""

CONTINUES: Final = {"continues": True}
"""The annotations of a block that is more of the one before it."""

Block = dict[str, Any]


def blocks_of(result: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a result's blocks as JSON, the long ones in pieces.

    What passes MAX_RESULT is left out, and a text says so.
    """
    left = MAX_RESULT
    content: object = result.get("content")
    for block in cast("list[object]", content) if isinstance(content, list) else []:
        if not isinstance(block, dict) or not isinstance(cast("Block", block).get("type"), str):
            yield encode(_text(f"[The server sent what is not a content block: {json.dumps(block)[:200]}]"))
            continue
        block = cast("Block", block)
        size = len(encode(block))
        if size > left:
            kind = block["type"]
            note = f"[Content of type {kind!r} with {size} bytes was left out: a result holds {MAX_RESULT} bytes. "
            yield encode(_text(f"{note}Make the tool write it to a file of the sandbox.]"))
            continue
        left -= size
        yield from (encode(piece) for piece in _pieces(block))


def encode(block: Mapping[str, Any]) -> bytes:
    """Return a block's JSON, which no lone surrogate can break."""
    return json.dumps(block, separators=(",", ":")).encode()


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _pieces(block: Block) -> Iterator[Block]:
    for holder, field, most in (("", "text", _MAX_TEXT), ("", "data", _MAX_DATA),
                                ("resource", "text", _MAX_TEXT), ("resource", "blob", _MAX_DATA)):  # fmt: skip
        inner: object = block.get(holder) if holder else block
        if isinstance(inner, dict):
            long: object = cast("Block", inner).get(field)
            if isinstance(long, str) and len(long) > most:
                yield from _cut(block, (holder, field), long, most)
                return
    yield block


def _cut(block: Block, where: tuple[str, str], long: str, most: int) -> Iterator[Block]:
    holder, field = where
    for at in range(0, len(long), most):
        part: Block = {field: long[at : at + most]}
        first = block if at == 0 else {"type": block["type"], "annotations": CONTINUES}
        yield {**first, holder: {**(block[holder] if at == 0 else {}), **part}} if holder else {**first, **part}
