"""The result of a call: a JSON-compatible dict with attributes for convenience, and how results are shown.

IPython asks for `_repr_mimebundle_` and `_repr_html_` (https://ipython.readthedocs.io/en/stable/config/integrating.html).
What comes from a sandbox is shown as text: none of its HTML reaches the notebook's page.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar, cast

T = TypeVar("T")

MOST_TEXT: Final = 10_000
"""Characters of a text that is shown."""

MOST_IMAGES: Final = 10 << 20
"""Characters of all images of one result, in base64."""

_MOST_ROWS: Final = 50
_MOST_COLUMNS: Final = 8
_MOST_CELL: Final = 80
_SHOWN: Final = 5
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SECRET: Final = ("token", "secret", "password", "url", "credential")


class ToolResult(dict[str, Any]):
    """A call's whole result.

    As a dict it is plain JSON: `meta`, `content` (text blocks with `description` "stdout", "stderr" or "returncode",
    and image or resource blocks of the Model Context Protocol), `isError`, and `structuredContent` if the tool returns
    one.
    """

    raw: dict[str, bytes] | None = None
    """The raw bytes of "stdout" and "stderr", which need not be text; None for a result that was made of a dict."""

    def __repr__(self) -> str:
        """Return what matters of it, shortened; `str()` has all of it, as of any dict."""
        failed = [f"fault={self.fault!r}"] if self.is_error else []
        code = [f"exit_code={self.exit_code}"] if self.exit_code is not None else []
        images = sum(block.get("type") == "image" for block in self.content)
        shown = [f"images={images}"] if images else []
        return f"{type(self).__name__}({', '.join([*failed, *code, f'text={clip(self.text, 200)!r}', *shown])})"

    __str__ = dict[str, Any].__repr__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: output, errors and images. HTML of a sandbox is not among it: see `forms`."""
        del include, exclude
        html = pre(self._joined("stdout", None)) + pre(self.stderr, "#b33") + image_html(self.content)
        return {"text/plain": clip(self.text, MOST_TEXT), "text/html": html or pre(repr(self))}

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

        Their form is that of the library e2b-charts; a figure of another kind has only its image.
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


class Listing(list[T]):
    """A list that is shown as a table in a notebook, and by its first entries elsewhere."""

    def __repr__(self) -> str:
        """Return the first entries, and how many more there are."""
        more = [f"... {len(self) - _SHOWN} more"] if len(self) > _SHOWN else []
        return f"[{', '.join([*map(repr, self[:_SHOWN]), *more])}]"

    def _repr_html_(self) -> str:
        return records_html(self)


def escape(text: str) -> str:
    """Return a text as HTML, also for values of attributes."""
    import html  # noqa: PLC0415 - its tables are large, and most programs show nothing

    return html.escape(text)


def clip(text: str, most: int) -> str:
    """Return a text, or its beginning and end with how much is left out between them."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}... {len(text) - head - tail} characters left out ...{text[-tail:]}"


def pre(text: str, color: str = "inherit") -> str:
    """Return a text as HTML; empty where there is none."""
    return f'<pre style="white-space: pre-wrap; color: {color}">{escape(clip(text, MOST_TEXT))}</pre>' if text else ""


def image_html(blocks: Iterable[Mapping[str, Any]]) -> str:
    """Return the images among content blocks as HTML, as many as there is room for."""
    shown: list[str] = []
    room = MOST_IMAGES
    for block in blocks:
        kind, data = block.get("mimeType"), block.get("data")
        if block.get("type") != "image" or kind not in _IMAGES or not isinstance(data, str):
            continue
        room -= len(data)
        if room < 0:
            return "".join([*shown, pre("further images are left out")])
        shown.append(f'<img style="max-width: 100%" src="data:{kind};base64,{escape(data)}">')
    return "".join(shown)


def table_html(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML."""
    titles = "".join(f"<th>{escape(one)}</th>" for one in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(one))}</td>' for one in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def records_html(records: Sequence[object]) -> str:
    """Return records as a table, with their first columns of plain values that are not secret."""
    first = records[0] if records else None
    if first is None or isinstance(first, type) or not is_dataclass(first):
        return pre(repr(records))
    names = [field.name for field in fields(first) if field.repr and not field.name.startswith("_")]
    plain = [name for name in names if not any(word in name for word in _SECRET)]
    shown = [name for name in plain if _is_plain(records, name)][:_MOST_COLUMNS]
    rows = [[getattr(record, name, "") for name in shown] for record in records[:_MOST_ROWS]]
    more = pre(f"{len(records) - _MOST_ROWS} more") if len(records) > _MOST_ROWS else ""
    return table_html(shown, rows) + more


def _is_plain(records: Sequence[object], name: str) -> bool:
    values = [getattr(record, name, None) for record in records[:_MOST_ROWS]]
    return all(value is None or isinstance(value, str | int | float | datetime) for value in values)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return "" if value is None else clip(str(value), _MOST_CELL)


@dataclass(frozen=True)
class StatsSample:
    """What a sandbox's processes used at a time, without its agent.

    `cpu` is processors in use on average since the sample before (1.5: one and a half), `cpu_seconds` processor time
    since the start, `memory_bytes` resident memory that is not shared, `processes` their number.
    """

    time: datetime
    cpu: float
    cpu_seconds: float
    memory_bytes: int
    processes: int


@dataclass(frozen=True)
class SandboxStats(StatsSample):
    """What a sandbox uses now, and `history`: samples of up to an hour since it was first asked, the oldest first.

    `disk_bytes` is what the files of its workspace and home take, None where they are not counted in half a second.
    `sent_bytes` and `received_bytes` are what went to hosts and came from them since its driver started, None where its
    driver does not count that. `cores`, `memory_total_bytes` and `disk_total_bytes` are what its processes see; a limit
    may be lower.
    """

    disk_bytes: int | None
    sent_bytes: int | None
    received_bytes: int | None
    cores: int
    memory_total_bytes: int
    disk_total_bytes: int
    history: tuple[StatsSample, ...]


def read_stats(found: dict[str, Any], sent_bytes: int | None, received_bytes: int | None) -> SandboxStats:
    """Read the structured result of `read_stats`."""
    disk = found["disk_bytes"]
    return SandboxStats(
        **_sample_fields(found),
        disk_bytes=None if disk is None else int(disk),
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        cores=int(found["cores"]),
        memory_total_bytes=int(found["memory_total_bytes"]),
        disk_total_bytes=int(found["disk_total_bytes"]),
        history=tuple(StatsSample(**_sample_fields(each)) for each in found["history"]),
    )


def _sample_fields(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        "time": datetime.fromtimestamp(float(sample["time"]), UTC),
        "cpu": float(sample["cpu"]),
        "cpu_seconds": float(sample["cpu_seconds"]),
        "memory_bytes": int(sample["memory_bytes"]),
        "processes": int(sample["processes"]),
    }


@dataclass(frozen=True)
class CallSummary:
    """A call that was made in a sandbox: its tool, when it began, how long it took in seconds, and how it ended.

    `seconds` is None and `reason` empty while it runs. `reason` is EXITED, TIMED_OUT, CANCELLED, KILLED, OUT_OF_MEMORY
    or SANDBOX_LOST; `is_error` says that its result is an error.
    """

    tool: str
    started: datetime
    seconds: float | None
    reason: str
    is_error: bool


def read_calls(found: dict[str, Any]) -> list[CallSummary]:
    """Read the structured result of `list_calls`."""
    return [
        CallSummary(
            tool=str(call["tool"]),
            started=datetime.fromtimestamp(float(call["started"]), UTC),
            seconds=None if call["seconds"] is None else float(call["seconds"]),
            reason=str(call["reason"]),
            is_error=bool(call["is_error"]),
        )
        for call in found["calls"]
    ]


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A path of an overlay that differs from the sandbox that the overlay was made of.

    `type`, `size` in bytes and `mode` are those of what is there now; of what was there, where it is removed.
    """

    path: str
    change: Literal["added", "changed", "removed"]
    type: Literal["file", "directory", "symlink"]
    size: int
    mode: int
