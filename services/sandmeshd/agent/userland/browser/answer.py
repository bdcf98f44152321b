"""What a browser tool answers with, and how it fails."""

from __future__ import annotations

import base64
from typing import Any, Final

LARGEST_IMAGE: Final = 1_200_000
"""The most bytes of an image in an answer: in base64 it must fit a message of the agent's link."""
_MAX_TEXT: Final = 400_000


class BrowserFailure(Exception):
    """A tool that could not do what was requested; the message says what to do."""


class BrowserAnswer:
    """The parts of a tool's answer, in order."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.structured: dict[str, Any] = {}
        self.with_page = False
        """Whether the page's state follows."""
        self.snapshot_arguments: dict[str, Any] | None = None
        """Which part of the page's tree follows; None: what changed in it."""

    def add(self, text: str) -> None:
        """Add a text; of a very long one the end is left out."""
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}\n[{len(text) - _MAX_TEXT} more characters were left out]"
        self.blocks.append({"type": "text", "text": text})

    def add_image(self, data: bytes, kind: str) -> None:
        """Add an image, `kind` being its media type."""
        self.blocks.append({"type": "image", "data": base64.b64encode(data).decode(), "mimeType": kind})
