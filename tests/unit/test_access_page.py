"""docs/access.md."""

from __future__ import annotations

from pathlib import Path

from scripts.access_page import page, public_methods, secret_fields

PAGE = Path(__file__).parents[2] / "docs" / "access.md"


def test_the_page_is_what_the_protos_and_the_gateway_say() -> None:
    assert PAGE.read_text() == page(), "python scripts/access_page.py > docs/access.md"


def test_what_can_be_used_is_marked_as_secret() -> None:
    marked = {field for method in public_methods() for field in secret_fields(method.output_type)}
    assert {"ExposedPort.url", "SandboxSpec.environment", "SandboxSecret.sealed"} <= marked
