"""What a call gave, as a dict that JSON takes and with attributes that say it shorter."""

from __future__ import annotations

import base64
from typing import Any


class ToolResult(dict[str, Any]):
    """A call's whole result.

    As a dict it is plain JSON: `meta`, `content` (text blocks with `description` "stdout", "stderr" or "returncode",
    and image or resource blocks as the Model Context Protocol has them), `isError`, and `structuredContent` where the
    tool gives one.
    """

    _raw: dict[str, bytes]

    @classmethod
    def with_output(cls, plain: dict[str, Any], raw: dict[str, bytes]) -> ToolResult:
        """Make one that knows the bytes that a process wrote, which need not be text."""
        made = cls(plain)
        made._raw = raw
        return made

    @property
    def content(self) -> list[dict[str, Any]]:
        """The blocks, in the order in which they came."""
        blocks: list[dict[str, Any]] = self.get("content", [])
        return blocks

    @property
    def text(self) -> str:
        """All text, output and errors in order, without the exit code."""
        return self._joined("stdout", "stderr", None)

    @property
    def stdout(self) -> str:
        """The text of standard output and of what the tool shows as its result."""
        return self._joined("stdout")

    @property
    def stderr(self) -> str:
        """The text of standard error and of what went wrong."""
        return self._joined("stderr")

    @property
    def stdout_bytes(self) -> bytes:
        """What was written to standard output, byte by byte."""
        return self._bytes("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        """What was written to standard error, byte by byte."""
        return self._bytes("stderr")

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that ended by itself; None where there was none."""
        code: int | None = self.get("meta", {}).get("exit_code")
        return code

    @property
    def is_error(self) -> bool:
        """Whether the tool, or the code or command that it ran, failed."""
        return bool(self.get("isError"))

    @property
    def images(self) -> list[bytes]:
        """The images, decoded; their blocks' `mimeType` says of what kind."""
        return [base64.b64decode(block["data"]) for block in self.content if block.get("type") == "image"]

    @property
    def structured(self) -> dict[str, Any] | None:
        """The tool's structured result, where it gives one."""
        found: dict[str, Any] | None = self.get("structuredContent")
        return found

    def forms(self, kind: str) -> list[Any]:
        """Give what was shown in one form, by its MIME type: "text/html", "image/svg+xml", "application/json", ..."""
        annotated = [block.get("annotations") for block in self.content]
        return [forms[kind] for forms in annotated if isinstance(forms, dict) and kind in forms]

    @property
    def records(self) -> list[list[dict[str, Any]]]:
        """The data frames that were shown, each as its first 500 rows."""
        tables = self.forms("application/vnd.dataresource+json")
        return [table["data"] for table in tables]

    def _bytes(self, stream: str) -> bytes:
        raw: dict[str, bytes] | None = getattr(self, "_raw", None)
        return raw[stream] if raw is not None else self._joined(stream).encode()

    def _joined(self, *descriptions: str | None) -> str:
        joined: list[str] = []
        for block in self.content:
            if block.get("type") == "text" and block.get("description") in descriptions:
                # Blocks are separate texts: one that does not end its line must not run into the next.
                if joined and joined[-1] and not joined[-1].endswith("\n"):
                    joined.append("\n")
                joined.append(str(block.get("text", "")))
        return "".join(joined)
