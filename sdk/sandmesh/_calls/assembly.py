"""Makes a call's result of its events."""

from __future__ import annotations

import codecs
from typing import Any, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.events import STREAMS, Result, read_block, read_result, text_decoder
from sandmesh.results import ToolResult

# The one tool whose users look for its exit code among the blocks.
SHELL = "run_shell_command"

Block = dict[str, Any]

# How an agent marks a block that is more of the last one, which was too long for one event.
CONTINUES = {"continues": True}

# What may be that long, and in which part of a block.
_LONG = (("", "text"), ("", "data"), ("resource", "text"), ("resource", "blob"))


def text_block(text: str, description: str | None) -> Block:
    """Return a text block."""
    return {"type": "text", "text": text, "annotations": None, "description": description}


class Assembly:
    """Collects the events of one call; what one stream wrote without another between is one block."""

    def __init__(self, tool: str, call_id: str) -> None:
        self._tool = tool
        self._call_id = call_id
        self._content: list[Block] = []
        self._pieces: list[str] = []
        self._whole: Block | None = None
        self._continued: list[Block] = []
        self._open: int = 0
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        self._raw: dict[int, list[bytes]] = {}
        self._dropped = 0

    def add(self, event: pb.CallEvent) -> None:
        """Take the next event; the result comes with `finish`."""
        kind = event.WhichOneof("event")
        if kind == "output":
            self._add_output(event.output)
        elif kind == "content":
            self._add_content(event.content)
        elif kind == "dropped":
            self._add_dropped(event.dropped)

    def finish(self, ended: pb.Result) -> ToolResult:
        """Return the result."""
        result = read_result(ended)
        self._close()
        self._join()
        self._flush()
        self._explain(result)
        if self._tool == SHELL and result.exit_code is not None:
            self._content.append(text_block(str(result.exit_code), "returncode"))
        plain: dict[str, Any] = {"meta": self._meta(result), "content": self._content, "isError": result.is_error}
        if result.structured is not None:
            plain["structuredContent"] = result.structured
        raw: dict[str, bytes] = {name: b"".join(self._raw.get(number, ())) for number, name in STREAMS.items()}
        return ToolResult.with_output(plain, raw)

    def _add_output(self, output: pb.Output) -> None:
        number = output.stream if output.stream in STREAMS else pb.STREAM_STDOUT
        if number != self._open:
            self._close()
            self._open = number
        if number not in self._raw:
            self._raw[number], self._decoders[number] = [], text_decoder()
        self._raw[number].append(output.data)
        self._pieces.append(self._decoders[number].decode(output.data))

    def _add_content(self, content: pb.Content) -> None:
        self._close()
        block = read_block(content)
        if block.get("annotations") == CONTINUES and self._whole is not None:
            self._continued.append(block)
            return
        self._join()
        self._whole = block
        block.setdefault("annotations", None)
        block.setdefault("description", "stdout" if block.get("type") == "text" else None)
        self._content.append(block)

    def _add_dropped(self, dropped: pb.Dropped) -> None:
        self._close()
        self._dropped += dropped.bytes
        self._content.append(text_block(f"[{dropped.bytes} bytes of output were left out here]\n", "stderr"))

    def _join(self) -> None:
        if not self._continued or self._whole is None:
            return
        for holder, field in _LONG:
            parts = [_part(block, holder, field) for block in (self._whole, *self._continued)]
            if parts[0] is not None:
                whole = self._whole[holder] if holder else self._whole
                whole[field] = "".join(part or "" for part in parts)
        self._continued.clear()

    def _close(self) -> None:
        if self._open == 0:
            return
        text = "".join(self._pieces)
        if text:
            self._content.append(text_block(text, STREAMS[self._open]))
        self._pieces.clear()
        self._open = 0

    def _flush(self) -> None:
        # Bytes of a character that never became whole.
        for number, decoder in self._decoders.items():
            rest = decoder.decode(b"", final=True)
            if rest:
                self._content.append(text_block(rest, STREAMS[number]))

    def _explain(self, result: Result) -> None:
        # An exit code explains itself; a word of ours in between would not be what the program wrote.
        if not result.is_error or not result.message or result.exit_code is not None:
            return
        if not any(result.message in str(block.get("text", "")) for block in self._content):
            self._content.append(text_block(result.message, "stderr"))

    def _meta(self, result: Result) -> dict[str, Any]:
        return {
            "call_id": self._call_id,
            "tool": self._tool,
            "reason": result.reason,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "dropped_bytes": self._dropped,
            "message": result.message,
        }


def _part(block: Block, holder: str, field: str) -> str | None:
    inner: Any = block.get(holder) if holder else block
    part: Any = cast("Block", inner).get(field) if isinstance(inner, dict) else None
    return part if isinstance(part, str) else None
