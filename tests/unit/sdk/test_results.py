"""Results as they are made of events."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from sandmesh import ToolResult
from sandmesh._calls.runner import Assembly
from sandmesh.api.call.v1 import call_pb2 as pb

OUT, ERR = pb.STREAM_STDOUT, pb.STREAM_STDERR
PIXEL = b'{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}'


def output(data: bytes, stream: pb.Stream.ValueType = OUT) -> pb.CallEvent:
    return pb.CallEvent(output=pb.Output(stream=stream, data=data))


def content(block: bytes) -> pb.CallEvent:
    return pb.CallEvent(content=pb.Content(json=block))


def assemble(*events: pb.CallEvent, tool: str = "run_shell_command", **result: Any) -> ToolResult:
    assembly = Assembly(tool, "c1")
    for event in events:
        assembly.add(event)
    result.setdefault("reason", pb.END_REASON_EXITED)
    return assembly.finish(pb.Result(**result))


def block(text: str, description: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "annotations": None, "description": description}


def test_output_without_another_stream_between_is_one_block() -> None:
    result = assemble(output(b"a"), output(b"b\n"), output(b"e", ERR), output(b"c"), exit_code=0)
    assert result["content"] == [
        block("ab\n", "stdout"),
        block("e", "stderr"),
        block("c", "stdout"),
        block("0", "returncode"),
    ]
    assert (result.stdout, result.stderr, result.text) == ("ab\nc", "e", "ab\ne\nc")


def test_only_a_shell_command_shows_its_exit_code_as_a_block() -> None:
    assert assemble(exit_code=3, tool="run_ipython_cell")["content"] == []
    assert assemble(exit_code=3)["content"] == [block("3", "returncode")]


def test_an_exit_code_is_never_invented() -> None:
    result = assemble(reason=pb.END_REASON_KILLED, signal=9, is_error=True, message="killed by signal 9")
    assert result.exit_code is None
    assert result["content"] == [block("killed by signal 9", "stderr")]
    assert (result["meta"]["reason"], result["meta"]["signal"]) == ("KILLED", 9)


def test_a_message_that_the_tool_said_already_is_not_said_twice() -> None:
    result = assemble(content(b'{"type": "text", "text": "no such file: a"}'), message="no such file", is_error=True)
    assert len(result["content"]) == 1


def test_the_whole_is_plain_json() -> None:
    result = assemble(output(b"\xff\n"), content(PIXEL), exit_code=1, structured_json=b'{"a": 1}')
    assert json.loads(json.dumps(result)) == result
    assert set(result) == {"meta", "content", "isError", "structuredContent"}
    assert result.structured == {"a": 1}
    assert ToolResult(json.loads(json.dumps(result))).exit_code == 1


def test_a_character_cut_between_chunks_is_whole() -> None:
    euro = "€".encode()
    result = assemble(output(euro[:1]), output(euro[1:2]), output(euro[2:] + b"!"))
    assert result.stdout == "€!"


def test_a_character_cut_by_the_other_stream_stays_one() -> None:
    euro = "€".encode()
    result = assemble(output(b"a" + euro[:2]), output(b"e", ERR), output(euro[2:]))
    assert [found["text"] for found in result["content"]] == ["a", "e", "€"]


def test_bytes_that_are_no_text_are_shown_and_kept() -> None:
    result = assemble(output(b"\xfe\x00ok\xe2"), output(b"\xff", ERR))
    assert result.stdout == "\\xfe\x00ok\n\\xe2"
    assert result.stdout_bytes == b"\xfe\x00ok\xe2"
    assert result.stderr_bytes == b"\xff"


def test_a_copy_keeps_the_bytes() -> None:
    result = assemble(output(b"\xff"))
    for copied in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):  # noqa: S301 - it was dumped here
        assert (type(copied), copied.stdout_bytes) == (ToolResult, b"\xff")


def test_output_that_was_left_out_is_said_where_it_was() -> None:
    gap = pb.CallEvent(dropped=pb.Dropped(bytes=12))
    result = assemble(output(b"a\n"), gap, output(b"z\n"))
    assert [found["text"] for found in result["content"]] == ["a\n", "[12 bytes of output were left out here]\n", "z\n"]
    assert result["meta"]["dropped_bytes"] == 12
    assert result.stdout == "a\nz\n"


def test_content_blocks_stay_as_they_are_with_the_keys_they_lack() -> None:
    own = b'{"type": "text", "text": "2", "description": "result", "annotations": {"audience": ["user"]}}'
    result = assemble(content(own), content(b'{"type": "text", "text": "3"}'), content(PIXEL), tool="x")
    assert result["content"][0] == json.loads(own)
    assert result["content"][1] == block("3", "stdout")
    assert result.images == [b"\x89PNG\r\n\x1a\n"[:4]]
    assert result["content"][2]["description"] is None


@pytest.mark.parametrize("broken", [b"\xff", b"[1]", b"{"])
def test_a_broken_block_is_text_and_breaks_nothing(broken: bytes) -> None:
    (found,) = assemble(content(broken), structured_json=broken, tool="x")["content"]
    assert found["text"] == broken.decode(errors="backslashreplace")


def test_megabytes_of_output_are_put_together_once() -> None:
    result = assemble(*(output(b"x" * 65536) for _ in range(100)))
    assert len(result["content"]) == 1
    assert len(result.stdout) == len(result.stdout_bytes) == 6553600


def test_a_text_that_came_in_pieces_is_one_block_whatever_was_written_between() -> None:
    more = b'{"type": "text", "text": "b", "annotations": {"continues": true}}'
    result = assemble(content(b'{"type": "text", "text": "a"}'), content(more), output(b"x"), content(more), tool="x")
    assert result["content"] == [block("abb", "stdout"), block("x", "stdout")]


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        (pb.END_REASON_EXITED, "task"),
        (pb.END_REASON_KILLED, "task"),
        (pb.END_REASON_TIMED_OUT, "limit"),
        (pb.END_REASON_OUT_OF_MEMORY, "limit"),
        (pb.END_REASON_CANCELLED, "infra"),
        (pb.END_REASON_SANDBOX_LOST, "infra"),
    ],
)
def test_a_failure_says_whose_fault_it_is(reason: pb.EndReason.ValueType, fault: str) -> None:
    assert assemble(reason=reason, is_error=True, message="it failed").fault == fault
    assert ToolResult({"isError": True}).fault == "task"
    assert assemble(output(b"done\n")).fault is None
