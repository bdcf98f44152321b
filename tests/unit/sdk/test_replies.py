"""Bounds of what a model is sent for one call."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sandmesh import ToolResult, errors
from sandmesh.replies import IMAGE_BYTES, MOST_IMAGES, read_reply_characters, shorten_result, shorten_text


def result_of(*blocks: dict[str, Any]) -> ToolResult:
    """Build a result."""
    return ToolResult({"meta": None, "content": list(blocks), "isError": False})


def text(content: str, stream: str = "stdout") -> dict[str, Any]:
    """Build a block of text."""
    return {"type": "text", "text": content, "annotations": None, "description": stream}


def image(size: int) -> dict[str, Any]:
    """Build a block of an image."""
    return {"type": "image", "data": base64.b64encode(bytes(size)).decode(), "mimeType": "image/png"}


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "10", float("inf")])
def test_a_bound_that_is_not_a_whole_number_above_zero_is_refused(bound: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="a whole number above 0"):
        read_reply_characters(bound)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 999])
def test_a_long_text_is_its_start_and_its_end_with_the_number_of_characters_left_out(bound: int) -> None:
    whole = "".join(chr(0x100 + number) for number in range(1000))
    short = shorten_text(whole, bound)
    head, _, tail = short.partition(f"\n[{1000 - bound} characters left out of 1000 characters]\n")
    assert len(head) + len(tail) == bound
    assert whole.startswith(head)
    assert whole.endswith(tail)


def test_a_text_as_long_as_the_bound_stays_as_it_is() -> None:
    assert shorten_text("x" * 10, 10) == "x" * 10
    result = result_of(text("x" * 5), text("y" * 5))
    assert shorten_result(result, 10).result is result


def test_many_blocks_have_one_bound_together_and_one_note() -> None:
    blocks = [text(f"{number:04}\n" * 10, "stderr" if number % 2 else "stdout") for number in range(100)]
    reply = shorten_result(result_of(*blocks, text("1", "returncode")), 200, "/workspace/x")
    shown = reply.result.content
    assert [block["description"] for block in shown[:3]] == ["stdout", "stderr", "stdout"]
    assert shown[-1] == text("1", "returncode")
    joined = "".join(block["text"] for block in shown)
    note = "\n[4801 characters left out; all 5001 characters are in /workspace/x.txt]\n"
    assert joined.count(note) == 1
    assert len(joined) == 200 + len(note)
    assert reply.files == {"/workspace/x.txt": "".join(block["text"] for block in blocks) + "1"}


def test_images_between_texts_that_are_left_out_stay() -> None:
    shown = shorten_result(result_of(text("a" * 100), image(10), text("b" * 100)), 20).result
    assert [block["type"] for block in shown.content] == ["text", "image", "text"]


def test_an_image_that_vendors_refuse_is_a_file_and_a_note() -> None:
    reply = shorten_result(result_of(image(IMAGE_BYTES + 3)), 100, "/workspace/x")
    assert reply.files == {"/workspace/x-1.png": bytes(IMAGE_BYTES + 3)}
    assert reply.result.text == f"[image image/png of {IMAGE_BYTES + 3} bytes left out; it is in /workspace/x-1.png]"


def test_more_images_than_a_model_takes_are_files() -> None:
    reply = shorten_result(result_of(*[image(3)] * (MOST_IMAGES + 2)), 100, "/workspace/x")
    assert len(reply.result.images) == MOST_IMAGES
    assert len(reply.files) == 2


def test_what_is_not_base64_is_left_out_and_named() -> None:
    block = {"type": "image", "data": "*" * (IMAGE_BYTES * 2 + 1), "mimeType": "image/png"}
    assert "characters left out]" in shorten_result(result_of(block), 100).result.text


def test_an_embedded_resource_counts_and_is_cut_as_text() -> None:
    resource = {"type": "resource", "resource": {"uri": "x:///y", "text": "z" * 1000}}
    shown = shorten_result(result_of(resource), 100).result
    assert "characters left out" in shown.text
    assert len(shown.text) < 200


def test_other_forms_of_what_is_shown_are_left_out_when_larger_than_the_reply() -> None:
    block = {**text("a plot"), "annotations": {"text/html": "<p>" * 1000}}
    assert shorten_result(result_of(block), 100).result.content == [text("a plot")]
    small = {**text("a plot"), "annotations": {"text/html": "<p>"}}
    assert shorten_result(result_of(small), 100).result.content == [small]
