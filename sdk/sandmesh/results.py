"""The result of a call: a JSON-compatible dict with attributes for convenience."""

from __future__ import annotations

import base64
from typing import Any, Literal, cast


class ToolResult(dict[str, Any]):
    """A call's whole result.

    As a dict it is plain JSON: `meta`, `content` (text blocks with `description` "stdout", "stderr" or "returncode",
    and image or resource blocks of the Model Context Protocol), `isError`, and `structuredContent` if the tool returns
    one.
    """

    raw: dict[str, bytes] | None = None
    """The raw bytes of "stdout" and "stderr", which need not be text; None for a result that was made of a dict."""

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks in order."""
        blocks: list[dict[str, Any]] = self.get("content", [])
        return blocks

    @property
    def text(self) -> str:
        """All text, output and errors in order, without the exit code."""
        return self._joined("stdout", "stderr", None)

    @property
    def stdout(self) -> str:
        """The text of standard output and of the tool's displayed result."""
        return self._joined("stdout")

    @property
    def stderr(self) -> str:
        """The text of standard error and of errors."""
        return self._joined("stderr")

    @property
    def stdout_bytes(self) -> bytes:
        """The raw bytes of standard output."""
        return self._bytes("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        """The raw bytes of standard error."""
        return self._bytes("stderr")

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that exited by itself, else None."""
        code: int | None = self.get("meta", {}).get("exit_code")
        return code

    @property
    def is_error(self) -> bool:
        """Whether the tool, or the code or command that it ran, failed."""
        return bool(self.get("isError"))

    @property
    def fault(self) -> Literal["task", "infra", "limit"] | None:
        """Whose fault a failure is: "task" (the code), "limit" (time or memory), "infra" (the mesh); None: no failure.

        What a result does not say is an exception; `SandmeshError.fault` has the same values.
        """
        return self.get("meta", {}).get("fault", "task") if self.is_error else None

    @property
    def images(self) -> list[bytes]:
        """The decoded images; their blocks' `mimeType` has the format. One that is not base64 is left out."""
        images = (_decode(block.get("data")) for block in self.content if block.get("type") == "image")
        return [image for image in images if image is not None]

    @property
    def structured(self) -> dict[str, Any] | None:
        """The tool's structured result, None if it has none."""
        found: dict[str, Any] | None = self.get("structuredContent")
        return found

    def forms(self, kind: str) -> list[Any]:
        """Return the displayed values of one MIME type: "text/html", "image/svg+xml", "application/json", ..."""
        annotated: list[object] = [block.get("annotations") for block in self.content]
        found = [cast("dict[str, Any]", forms).get(kind) for forms in annotated if isinstance(forms, dict)]
        return [form for form in found if form is not None]

    @property
    def records(self) -> list[list[dict[str, Any]]]:
        """The displayed data frames, each as its first 500 rows."""
        tables = self.forms("application/vnd.dataresource+json")
        return [table["data"] for table in tables if isinstance(table, dict) and "data" in table]

    @property
    def charts(self) -> list[dict[str, Any]]:
        """The displayed charts of matplotlib as what they show: `type`, `title`, `elements`, labels and scales.

        Their form is that of the library e2b-charts; a figure that is none of its kinds has its image alone.
        """
        charts: list[dict[str, Any]] = self.forms("e2b/chart")
        return charts

    def _bytes(self, stream: str) -> bytes:
        return self.raw[stream] if self.raw is not None else self._joined(stream).encode()

    def _joined(self, *descriptions: str | None) -> str:
        joined: list[str] = []
        for block in self.content:
            if block.get("type") == "text" and block.get("description") in descriptions:
                # Blocks are separate texts: an unterminated line must not run into the next block.
                if joined and joined[-1] and not joined[-1].endswith("\n"):
                    joined.append("\n")
                joined.append(str(block.get("text", "")))
        return "".join(joined)


def _decode(data: object) -> bytes | None:
    # A block may come from a program in the sandbox, which writes what it wants.
    try:
        return base64.b64decode(data) if isinstance(data, str) else None
    except ValueError:
        return None
