"""What results, boxes and listings look like in a REPL and in a notebook."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

from sandmesh import BaseSandbox, BaseSandboxAsync, ToolResult
from sandmesh.files import FileInfo
from sandmesh.results import Listing
from sandmesh.sandbox.session.info import SessionInfo

HTML = "_repr_html_"
KEY = "smesh_" + "a" * 20
HOSTILE = "<script>alert(1)</script>&\"'"


def result(*blocks: dict[str, object], **more: object) -> ToolResult:
    """Return a result with these content blocks."""
    return ToolResult({"meta": {"exit_code": 0}, "content": list(blocks), "isError": False, **more})


def text(value: str, description: str = "stdout") -> dict[str, object]:
    """Return a block of text."""
    return {"type": "text", "text": value, "description": description}


def shown(value: object) -> dict[str, str]:
    """Return what a notebook shows of a value, by MIME type, as IPython asks for it."""
    bundle = getattr(value, "_repr_mimebundle_", None)
    found: dict[str, str] = bundle(include=None, exclude=None) if bundle else {"text/html": getattr(value, HTML)()}
    return found


def test_a_result_has_a_short_repr_and_is_whole_as_a_text() -> None:
    long = result(text("x" * 100_000))
    assert len(repr(long)) < 400
    assert "characters left out" in repr(long)
    assert str(long) == str(dict(long))
    assert json.loads(json.dumps(long)) == long
    assert repr(result(text("42"))) == "ToolResult(exit_code=0, text='42')"
    failed = ToolResult({"meta": {"fault": "limit"}, "content": [text("late", "stderr")], "isError": True})
    assert repr(failed) == "ToolResult(fault='limit', text='late')"


def test_a_notebook_shows_output_and_images_of_a_result_and_none_of_its_html() -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    image: dict[str, object] = {"type": "image", "mimeType": "image/png", "data": picture}
    vector: dict[str, object] = {"type": "image", "mimeType": "image/svg+xml", "data": picture}
    forms: dict[str, object] = {**text(HOSTILE), "annotations": {"text/html": HOSTILE}}
    found = shown(result(forms, text(HOSTILE, "stderr"), image, vector, {**image, "data": '"><script>'}))
    assert found["text/plain"] == f"{HOSTILE}\n{HOSTILE}"
    assert "<script>" not in found["text/html"]
    assert found["text/html"].count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2
    assert f'src="data:image/png;base64,{picture}"' in found["text/html"]
    assert "svg" not in found["text/html"]
    assert shown(result())["text/html"].startswith("<pre")


def test_what_a_notebook_shows_is_bounded() -> None:
    image: dict[str, object] = {"type": "image", "mimeType": "image/png", "data": "A" * (4 << 20)}
    found = shown(result(text("x" * 10_000_000), *[image] * 5))
    assert len(found["text/plain"]) < 11_000
    assert len(found["text/html"]) < 11 << 20
    assert "further images are left out" in found["text/html"]
    listing = Listing(FileInfo(f"file{number}", "file", 1, 0o644, 0) for number in range(1000))
    assert len(repr(listing)) < 1000
    assert repr(listing).endswith("... 995 more]")
    assert shown(listing)["text/html"].count("<tr>") == 51


def test_listings_are_lists_and_tables_of_plain_values() -> None:
    session = SessionInfo("ada", HOSTILE, "key", {"base": "sb_1"}, datetime(2026, 1, 2, tzinfo=UTC))
    listing = Listing([session])
    assert (listing == [session], repr(listing)) == (True, repr([session]))
    html = shown(listing)["text/html"]
    assert "<th>user_id</th>" in html
    assert "<td>2026-01-02 00:00:00+00:00</td>" in html
    assert "<script>" not in html
    assert "sb_1" not in html
    assert shown(Listing[int]())["text/html"].startswith("<pre")


def test_a_box_shows_neither_its_address_nor_its_token() -> None:
    for cls in (BaseSandbox, BaseSandboxAsync):
        box = cls(base_url="grpc://mesh.example:8570", bearer_token=KEY)
        for said in (repr(box), str(box), *shown(box).values()):
            assert KEY not in said
            assert "mesh.example" not in said
        assert repr(box) == f"<{cls.__name__} base not open>"
