"""What displays and clear_output leave of a call's output."""

from __future__ import annotations

import json
from typing import Any

from sandmesh import Cleared, ContentBlock
from sandmesh._calls.runner import Assembly
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.events import EventReader
from sandmesh.results import ToolResult


def shown(text: str, display: str = "", replaces: str = "", **block: Any) -> pb.CallEvent:
    """Return the event of a text, as a kernel sends it."""
    meta = {"sandmesh/display": display, "sandmesh/replaces": replaces}
    kept = {name: value for name, value in meta.items() if value}
    content = {"type": "text", "text": text, "description": "stdout", **({"_meta": kept} if kept else {}), **block}
    return pb.CallEvent(content=pb.Content(json=json.dumps(content).encode()))


def printed(text: str) -> pb.CallEvent:
    """Return the event of output."""
    return pb.CallEvent(output=pb.Output(stream=pb.STREAM_STDOUT, data=text.encode()))


CLEARED = shown("", replaces="*")


def collected(*events: pb.CallEvent) -> ToolResult:
    """Return the result of a call that has these events."""
    assembly = Assembly("run_ipython_cell", "c")
    for event in events:
        assembly.add(event)
    return assembly.finish(pb.Result(reason=pb.END_REASON_EXITED))


def test_an_update_takes_the_place_of_its_display() -> None:
    result = collected(shown("one", "d"), printed("between\n"), shown("two", "d", "d"), shown("three", "d", "d"))
    assert [block["text"] for block in result.content] == ["three", "between\n"]
    assert all("_meta" not in block for block in result.content)


def test_an_update_takes_every_place_of_its_display_and_no_other() -> None:
    result = collected(shown("a", "x"), shown("b", "y"), shown("a", "x"), shown("c", "x", "x"))
    assert [block["text"] for block in result.content] == ["c", "b", "c"]


def test_an_update_of_a_display_that_is_not_in_this_result_is_shown() -> None:
    assert collected(printed("x\n"), shown("late", "old", "old")).text == "x\nlate"


def test_what_was_cleared_is_in_no_part_of_the_result() -> None:
    result = collected(printed("one\n"), shown("two", "d"), CLEARED, printed("three\n"), shown("four", "d", "d"))
    assert result.text == "three\nfour"
    assert result.stdout_bytes == b"three\n"


def test_a_cleared_cell_that_shows_nothing_more_is_empty() -> None:
    assert collected(printed("one\n"), CLEARED).content == []


def test_a_long_update_and_a_long_form_are_whole() -> None:
    more: dict[str, Any] = {"annotations": {"continues": True}}
    form: dict[str, Any] = {"annotations": {"continues": True, "form": "text/html"}}
    result = collected(
        shown("one", "d"), shown("a", "d", "d"), shown("b", **more), shown("<p>", **form), shown("</p>", **form)
    )
    assert [block["text"] for block in result.content] == ["ab"]
    assert result.forms("text/html") == ["<p></p>"]
    parts = [shown(part, annotations={"continues": True, "form": "application/json"}) for part in ('{"a": ', "[1]}")]
    assert collected(shown("one"), *parts).forms("application/json") == [{"a": [1]}]


def test_a_block_of_a_broken_kernel_is_a_block() -> None:
    odd: dict[str, Any] = {"_meta": ["sandmesh/replaces"], "annotations": {"continues": True, "form": {}}}
    assert collected(shown("x", **odd)).text == "x"


def test_a_stream_says_what_its_events_replace() -> None:
    reader = EventReader()
    read = [reader.read(event) for event in (shown("one", "d"), shown("two", "d", "d"), CLEARED)]
    assert isinstance(read[0], ContentBlock)
    assert isinstance(read[1], ContentBlock)
    assert (read[0].display_id, read[0].replaces) == ("d", False)
    assert (read[1].display_id, read[1].replaces) == ("d", True)
    assert read[2] == Cleared()
