"""What a call gave, as MCP clients get it."""

from __future__ import annotations

import json

from mcp import types

from sandmesh import ToolResult
from sandmeshd.facades.mcp.replies import FORMS, STREAM, write_block, write_result


def test_text_says_which_stream_it_came_from_and_keeps_its_forms() -> None:
    block = write_block(
        {
            "type": "text",
            "text": "x",
            "description": "stdout",
            "annotations": {"priority": 0.5, "text/html": "<b>x</b>"},
        }
    )
    assert isinstance(block, types.TextContent)
    assert block.meta == {STREAM: "stdout", FORMS: {"text/html": "<b>x</b>"}}
    assert block.annotations == types.Annotations(priority=0.5)


def test_a_block_that_the_protocol_does_not_know_becomes_text() -> None:
    block = write_block({"type": "hologram", "data": "x"})
    assert isinstance(block, types.TextContent)
    assert json.loads(block.text) == {"type": "hologram", "data": "x"}


def test_structured_content_and_errors_stay_what_they_are() -> None:
    original = ToolResult(
        {"content": [], "isError": True, "structuredContent": {"a": [1]}, "meta": {"reason": "EXITED"}}
    )
    result = write_result(original)
    assert (result.structured_content, result.is_error) == ({"a": [1]}, True)
    assert result.meta == {"sandmesh/call": {"reason": "EXITED"}}
