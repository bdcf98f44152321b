"""The text and images of tools' replies, which adapters convert to what their frameworks send to models."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sandmesh.sandbox.tools.toolkit import Toolkit, ToolkitAsync

FORM = "anthropic"
"""The format of toolkits whose replies are read here."""


@dataclass(frozen=True)
class ReplyImage:
    """An image, encoded in base64."""

    mime_type: str
    base64: str

    @property
    def data(self) -> bytes:
        """The decoded image, empty if a program in the sandbox wrote what is not base64."""
        try:
            return base64.b64decode(self.base64)
        except binascii.Error:
            return b""

    @property
    def url(self) -> str:
        """The image as a data URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


@dataclass(frozen=True)
class ModelReply:
    """What a model is sent for a call: text, then images."""

    text: str
    images: tuple[ReplyImage, ...]
    is_error: bool

    @classmethod
    def read(cls, reply: Mapping[str, Any]) -> Self:
        """Read a toolkit's reply."""
        blocks: list[dict[str, Any]] = reply["content"]
        texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
        sources = [block["source"] for block in blocks if block["type"] == "image"]
        images = tuple(ReplyImage(str(source["media_type"]), str(source["data"])) for source in sources)
        return cls("\n".join(texts) or ("" if images else "(no output)"), images, bool(reply["is_error"]))

    @property
    def full_text(self) -> str:
        """The text, which begins with the failure where there is one, for frameworks that have no field for it."""
        return f"The tool failed.\n{self.text}" if self.is_error else self.text


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as the model sees it, and how it is called."""

    name: str
    description: str
    parameters: dict[str, Any]

    def call(self, kit: Toolkit, arguments: Mapping[str, Any] | str) -> ModelReply:
        """Run it with arguments or their JSON; a call that does not fit is reported to the model."""
        return ModelReply.read(kit.reply({"name": self.name, "input": arguments}))

    async def call_async(self, kit: ToolkitAsync, arguments: Mapping[str, Any] | str) -> ModelReply:
        """Run it as `call` does, in this event loop."""
        return ModelReply.read(await kit.reply({"name": self.name, "input": arguments}))


def definitions(kit: Toolkit | ToolkitAsync) -> list[ToolDefinition]:
    """Return the tools of a toolkit of the format `FORM`."""
    return [ToolDefinition(one["name"], one["description"], one["input_schema"]) for one in kit]
