"""Content blocks on their way to the agent: one that is too long for a frame goes in pieces that belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_MOST_TEXT: Final = 256 << 10
_MOST_DATA: Final = 1 << 20
LARGEST_RESULT: Final = 64 << 20
"""The most bytes of all blocks of a result."""

CONTINUES: Final = {"continues": True}
"""The annotations of a block that is more of the one before it."""

Block = dict[str, Any]


def blocks_of(result: Mapping[str, Any]) -> Iterator[bytes]:
    """Give a result's blocks as JSON, the long ones in pieces.

    What passes LARGEST_RESULT is left out, and a text says so.
    """
    left = LARGEST_RESULT
    content: object = result.get("content")
    for block in cast("list[object]", content) if isinstance(content, list) else []:
        if not isinstance(block, dict) or not isinstance(cast("Block", block).get("type"), str):
            yield encode(_text(f"[The server sent what is no content block: {json.dumps(block)[:200]}]"))
            continue
        block = cast("Block", block)
        size = len(encode(block))
        if size > left:
            kind = block["type"]
            told = f"[Content of type {kind!r} with {size} bytes was left out: a result holds {LARGEST_RESULT} bytes. "
            yield encode(_text(f"{told}Have the tool write it to a file of the sandbox.]"))
            continue
        left -= size
        yield from (encode(piece) for piece in _pieces(block))


def encode(block: Mapping[str, Any]) -> bytes:
    """Give a block's JSON, which no piece of text can break."""
    return json.dumps(block, separators=(",", ":")).encode()


def _text(told: str) -> Block:
    return {"type": "text", "text": told}


def _pieces(block: Block) -> Iterator[Block]:
    for holder, field, most in (("", "text", _MOST_TEXT), ("", "data", _MOST_DATA),
                                ("resource", "text", _MOST_TEXT), ("resource", "blob", _MOST_DATA)):  # fmt: skip
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
