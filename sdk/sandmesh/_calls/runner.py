"""Runs a call to its result, which is made of its events."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable, Sequence
from typing import Any

from sandmesh._calls.call import GRACE_SECONDS, Call, Order, Receiver
from sandmesh._calls.multiplexer import CallMux
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import DeadlineExceeded, SandmeshError
from sandmesh.events import (
    EVERYTHING,
    FAULTS,
    STREAMS,
    CallEvent,
    EventReader,
    Result,
    is_continuation,
    join_blocks,
    read_block,
    read_result,
    take_display,
    text_decoder,
)
from sandmesh.results import ToolResult

# A timer that never comes; loops refuse infinity.
NO_LIMIT_SECONDS = 10.0 * 365 * 86400

# The one tool whose users look for its exit code among the blocks.
SHELL = "run_shell_command"

Block = dict[str, Any]


async def run_call(mux: CallMux, order: Order, collector: Collector | None = None) -> ToolResult:
    """Run a call and give its result.

    Raises:
        SandmeshError: The mesh refused it or could not go on with it.
        DeadlineExceeded: There was no result in its time, nor an answer a little later.
    """
    collector = collector or Collector(mux)
    call = mux.begin(order, collector)
    late = start_deadline(mux, order, collector)
    try:
        return await collector.done
    except BaseException:
        mux.abandon(call)
        raise
    finally:
        late.cancel()


def start_deadline(mux: CallMux, order: Order, receiver: Receiver) -> asyncio.TimerHandle:
    """Start the timer that ends a call whose time passed without a word."""
    seconds = order.timeout + min(order.timeout, GRACE_SECONDS) if order.timeout else NO_LIMIT_SECONDS
    return mux.loop.call_later(seconds, lambda: receiver.on_error(_overdue(order)))


def _overdue(order: Order) -> DeadlineExceeded:
    message = (
        f"{order.tool} gave no result within {order.timeout:g} s and the mesh said nothing more; "
        "it was told to cancel the call"
    )
    return DeadlineExceeded(message, {"sandbox_id": order.sandbox_id}, changed=True)


class Collector:
    """Collects a call whole and acknowledges as it comes."""

    def __init__(self, mux: CallMux) -> None:
        self.done: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        self._mux = mux
        self._assembly: Assembly | None = None

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Collect events; the result ends the collection."""
        assembly = self._assembly
        if assembly is None:
            assembly = self._assembly = Assembly(call.order.tool, call.call_id)
        self._mux.acknowledge(call, call.last, size)
        for event in events:
            if event.HasField("result"):
                if not self.done.done():
                    self.done.set_result(assembly.finish(event.result))
                return
            assembly.add(event)

    def on_input_taken(self, call: Call) -> None:
        """Ignore it: no input was sent."""

    def on_error(self, error: SandmeshError) -> None:
        """End the collection."""
        if not self.done.done():
            self.done.set_exception(error)


class HeardCollector(Collector):
    """Collects a call whole and tells of its events as they come, in the loop and in their order."""

    def __init__(self, mux: CallMux, hear: Callable[[CallEvent], None]) -> None:
        super().__init__(mux)
        self._hear = hear
        self._reader = EventReader()

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Report events and collect them."""
        for event in events:
            read = self._reader.read(event)
            if read is not None:
                # What the listener does wrong must not reach the stream that all calls share.
                self._mux.loop.call_soon(self._hear, read)
        super().on_events(call, events, size)


class Assembly:
    """Collects the events of one call; what one stream wrote without another between is one block."""

    # Not a dataclass, whose factories of typed lists take 3 microseconds a call.
    def __init__(self, tool: str, call_id: str) -> None:
        self._tool = tool
        self._call_id = call_id
        self._content: list[Block] = []
        self._pieces: list[str] = []
        self._whole: Block | None = None
        self._displays: dict[str, list[int]] = {}
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
            return
        if kind not in ("content", "dropped"):
            return
        if self._open:
            self._close()
        if kind == "dropped":
            self._add_dropped(event.dropped)
            return
        block = read_block(event.content)
        if self._whole is not None and is_continuation(block):
            self._continued.append(block)
            return
        if self._continued:
            self._join()
        display, replaces = take_display(block)
        if replaces == EVERYTHING:
            self._clear()
            return
        self._whole = block
        block.setdefault("annotations", None)
        block.setdefault("description", "stdout" if block.get("type") == "text" else None)
        self._place(block, display, replaces)

    def _place(self, block: Block, display: str, replaces: str) -> None:
        """Add a block, or set it in the place of those of its display."""
        places = self._displays.get(replaces, ()) if replaces else ()
        for place in places:
            self._content[place] = block
        if not places:
            if display:
                self._displays.setdefault(display, []).append(len(self._content))
            self._content.append(block)

    def _clear(self) -> None:
        """Forget all that was written and shown: what follows replaces it."""
        self._whole = None
        for kept in (self._content, self._displays, self._decoders, self._raw):
            kept.clear()

    def finish(self, ended: pb.Result) -> ToolResult:
        """Return the result."""
        result = read_result(ended)
        if self._open:
            self._close()
        if self._continued:
            self._join()
        if self._decoders:
            self._flush()
        # An exit code explains itself; a word of ours in between would not be what the program wrote.
        if result.is_error and result.message and result.exit_code is None and not _has_traceback(result):
            self._explain(result.message)
        if self._tool == SHELL and result.exit_code is not None:
            self._content.append(_text_block(str(result.exit_code), "returncode"))
        meta = {
            "call_id": self._call_id,
            "tool": self._tool,
            "reason": result.reason,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "dropped_bytes": self._dropped,
            "message": result.message,
        }
        if result.is_error:
            meta["fault"] = FAULTS.get(result.reason, "task")
        made = ToolResult({"meta": meta, "content": self._content, "isError": result.is_error})
        if result.structured is not None:
            made["structuredContent"] = result.structured
        made.raw = {name: b"".join(self._raw.get(number, ())) for number, name in STREAMS.items()}
        return made

    def _add_output(self, output: pb.Output) -> None:
        number = output.stream if output.stream in STREAMS else pb.STREAM_STDOUT
        if number != self._open:
            if self._open:
                self._close()
            self._open = number
        if number not in self._raw:
            self._raw[number], self._decoders[number] = [], text_decoder()
        self._raw[number].append(output.data)
        self._pieces.append(self._decoders[number].decode(output.data))

    def _add_dropped(self, dropped: pb.Dropped) -> None:
        if not dropped.bytes:
            return  # only events without output are missing
        self._dropped += dropped.bytes
        self._content.append(_text_block(f"[{dropped.bytes} bytes of output were left out here]\n", "stderr"))

    def _join(self) -> None:
        join_blocks(self._whole or {}, self._continued)
        self._continued.clear()

    def _close(self) -> None:
        text = "".join(self._pieces)
        if text:
            self._content.append(_text_block(text, STREAMS[self._open]))
        self._pieces.clear()
        self._open = 0

    def _flush(self) -> None:
        # Bytes of a character that never became whole.
        for number, decoder in self._decoders.items():
            rest = decoder.decode(b"", final=True)
            if rest:
                self._content.append(_text_block(rest, STREAMS[number]))

    def _explain(self, message: str) -> None:
        if not any(message in str(block.get("text", "")) for block in self._content):
            self._content.append(_text_block(message, "stderr"))


def _has_traceback(result: Result) -> bool:
    """Return whether the kernel showed what was raised, so that nothing is to be added."""
    return bool(result.structured and "error" in result.structured)


def _text_block(text: str, description: str | None) -> Block:
    return {"type": "text", "text": text, "annotations": None, "description": description}
