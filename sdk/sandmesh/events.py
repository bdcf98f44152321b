"""The events of a call, as `box.stream(...)` yields them.

The first is Started and the last is Result; those between are in the order in which they happened.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from sandmesh.api.call.v1 import call_pb2 as pb

StreamName = Literal["stdout", "stderr"]

FAULTS: Mapping[str, Literal["task", "infra", "limit"]] = {
    "TIMED_OUT": "limit", "OUT_OF_MEMORY": "limit", "SANDBOX_LOST": "infra", "CANCELLED": "infra", "UNKNOWN": "infra",
}  # fmt: skip
"""Whose fault a failure with these end reasons is; with the others it is the task's, also if a signal ended it."""


@dataclass(frozen=True, slots=True)
class Started:
    """The call was accepted and runs; `pid` is its process in the sandbox, None if it has none."""

    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a process: `data` are its bytes, `text` has \\xNN for what is not UTF-8.

    A character that is split between two events is in the second one's text.
    """

    stream: StreamName
    data: bytes = field(repr=False)
    text: str


@dataclass(frozen=True, slots=True)
class ContentBlock:
    """A content block in the format of the Model Context Protocol: text, an image, a resource.

    A live view replaces the last block of the same `display_id` by one with `replaces`.
    """

    block: dict[str, Any]
    display_id: str | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Cleared:
    """What the code wrote and showed so far no longer counts: what follows replaces it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a tool; `total` is None if it is unknown."""

    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A gap in the output: `bytes` were dropped here."""

    bytes: int


@dataclass(frozen=True, slots=True)
class InputRequested:
    """The code waits for a line of input; with `password` it must not be echoed."""

    prompt: str
    password: bool


@dataclass(frozen=True, slots=True)
class Result:
    """The end of the call, with its reason: EXITED, TIMED_OUT, CANCELLED, KILLED, OUT_OF_MEMORY or SANDBOX_LOST.

    `exit_code` is set if the process exited by itself, `signal` if a signal ended it; neither is made up.
    """

    reason: str
    is_error: bool
    exit_code: int | None
    signal: int | None
    message: str
    structured: dict[str, Any] | None

    @property
    def fault(self) -> Literal["task", "infra", "limit"] | None:
        """Whose fault the failure is, as `ToolResult.fault`; None if the call did not fail."""
        return FAULTS.get(self.reason, "task") if self.is_error else None


CallEvent: TypeAlias = Started | Output | ContentBlock | Cleared | Progress | Dropped | InputRequested | Result

STREAMS: dict[int, StreamName] = {pb.STREAM_STDOUT: "stdout", pb.STREAM_STDERR: "stderr"}

_LONG = (("", "text"), ("", "data"), ("resource", "text"), ("resource", "blob"))
"""What of a block may be long: a key, or one of what a key holds."""

_DISPLAY, _REPLACES, EVERYTHING = "sandmesh/display", "sandmesh/replaces", "*"

_REASONS = {number: name.removeprefix("END_REASON_") for name, number in pb.EndReason.items()}


def text_decoder() -> codecs.IncrementalDecoder:
    """Return an incremental UTF-8 decoder that shows other bytes as \\xNN."""
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")


def read_block(content: pb.Content) -> dict[str, Any]:
    """Convert a content block; one that is not a JSON object, which only a broken tool sends, becomes text."""
    try:
        block: object = json.loads(content.json)
    except (ValueError, RecursionError):
        block = None
    if isinstance(block, dict):
        return cast("dict[str, Any]", block)
    return {"type": "text", "text": content.json.decode(errors="backslashreplace")}


def is_continuation(block: Mapping[str, Any]) -> bool:
    """Return whether a block is more of the one before, which was too long for one event, or of a form of it."""
    annotations: object = block.get("annotations")
    return isinstance(annotations, dict) and cast("dict[str, Any]", annotations).get("continues") is True


def join_blocks(whole: dict[str, Any], continued: Iterable[Mapping[str, Any]]) -> None:
    """Complete a block, and the forms that it has, with those that continue it."""
    forms: dict[str, list[str]] = {}
    more: list[Mapping[str, Any]] = []
    for block in continued:
        kind = block["annotations"].get("form")
        if kind is None:
            more.append(block)
        else:
            forms.setdefault(str(kind), []).append(str(block.get("text", "")))
    for holder, key in _LONG:
        parts = [_part(block, holder, key) for block in (whole, *more)]
        if parts[0] is not None and more:
            (whole[holder] if holder else whole)[key] = "".join(part or "" for part in parts)
    if forms:
        read = {kind: _read_form(kind, "".join(parts)) for kind, parts in forms.items()}
        whole["annotations"] = {**(whole.get("annotations") or {}), **read}


def _part(block: Mapping[str, Any], holder: str, key: str) -> str | None:
    inner: Any = block.get(holder) if holder else block
    part: Any = cast("dict[str, Any]", inner).get(key) if isinstance(inner, dict) else None
    return part if isinstance(part, str) else None


def _read_form(kind: str, text: str) -> Any:
    """Return a form that came in parts: JSON is a value, as where it comes in one block."""
    try:
        return json.loads(text) if kind.endswith("json") else text
    except (ValueError, RecursionError):
        return text


def take_display(block: dict[str, Any]) -> tuple[str, str]:
    """Take out of a block the id of its display, and what it replaces: that display, EVERYTHING or "" for nothing."""
    meta: object = block.get("_meta")
    if not isinstance(meta, dict):
        return "", ""
    found = cast("dict[str, Any]", meta)
    display, replaces = found.pop(_DISPLAY, ""), found.pop(_REPLACES, "")
    if not found:
        del block["_meta"]
    return str(display), str(replaces)


def _read_content(content: pb.Content) -> CallEvent:
    block = read_block(content)
    display, replaces = take_display(block)
    return Cleared() if replaces == EVERYTHING else ContentBlock(block, display or None, bool(replaces))


def read_result(result: pb.Result) -> Result:
    """Convert a call's result."""
    return Result(
        reason=_REASONS.get(result.reason, "UNKNOWN"),
        is_error=result.is_error,
        exit_code=result.exit_code if result.HasField("exit_code") else None,
        signal=result.signal if result.HasField("signal") else None,
        message=result.message,
        structured=_read_object(result.structured_json) if result.structured_json else None,
    )


def _read_object(data: bytes) -> dict[str, Any] | None:
    # A sandbox's output is untrusted: what is malformed must not break the caller's other calls.
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


class EventReader:
    """Converts the events of one call; it keeps a character that was split between two."""

    def __init__(self) -> None:
        self._decoders = {number: text_decoder() for number in STREAMS}
        self._readers: dict[str, Callable[[Any], CallEvent | None]] = {
            "started": lambda event: Started(event.pid or None),
            "output": self._output,
            "content": _read_content,
            "progress": lambda event: Progress(event.progress, event.total or None, event.message),
            "dropped": lambda event: Dropped(event.bytes) if event.bytes else None,
            "input_requested": lambda event: InputRequested(event.prompt, event.password),
            "result": read_result,
        }

    def read(self, event: pb.CallEvent) -> CallEvent | None:
        """Convert an event; return None for a kind that only a newer mesh knows, and where no output was dropped."""
        kind = event.WhichOneof("event")
        return None if kind is None else self._readers[kind](getattr(event, kind))

    def _output(self, output: pb.Output) -> Output:
        number = output.stream if output.stream in STREAMS else pb.STREAM_STDOUT
        return Output(STREAMS[number], output.data, self._decoders[number].decode(output.data))
