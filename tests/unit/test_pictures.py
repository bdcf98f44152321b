"""The pictures of the documentation: each is shown on a page, and small."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["browser", "desktop"])
def test_a_picture_is_a_small_png_on_the_page_of_its_name(name: str) -> None:
    data = (DOCS / "pictures" / f"{name}.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) < 200 * 1024
    assert f"](pictures/{name}.png)" in (DOCS / f"{name}.md").read_text()
