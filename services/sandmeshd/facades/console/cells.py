"""Cells of Python, run in a sandbox's kernel: what they write and show, a line of JSON for each event."""

from __future__ import annotations

import json
from typing import Any, Final, cast

from aiohttp import web

from sandmesh.errors import SandmeshError
from sandmesh.events import CallEvent, Cleared, ContentBlock, Dropped, Output, Result, is_continuation
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.console.guard import HEADERS
from sandmeshd.facades.console.sessions import Session

MOST_TEXT: Final = 1 << 20
"""Characters of one cell's output that are passed on."""
_MOST_BLOCK: Final = 16 << 20
_SHOWN: Final = ("text/html", "image/svg+xml")


async def run_cell(request: web.Request, session: Session) -> web.StreamResponse:
    """Run a cell; closing the request cancels it."""
    code = (await read_object(request)).get("code")
    if not isinstance(code, str) or not code.strip():
        raise RequestError(400, "code is missing")
    async with session.box(request.match_info["id"]) as box:
        response = web.StreamResponse(headers=HEADERS)
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        rows = CellRows()
        try:
            async for event in box.stream("run_ipython_cell", code=code):
                for row in rows.of(event):
                    await response.write(json.dumps(row).encode() + b"\n")
        except SandmeshError as error:
            await response.write(json.dumps({"type": "end", "failed": True, "message": error.message}).encode() + b"\n")
        await response.write_eof()
    return response


class CellRows:
    """Events of a cell as rows for the page, bounded."""

    def __init__(self) -> None:
        self._left = MOST_TEXT
        self._cut = False

    def of(self, event: CallEvent) -> list[dict[str, Any]]:
        """Return an event's rows."""
        match event:
            case Output():
                return self._text(event.stream, event.text)
            case ContentBlock():
                return self._block(event)
            case Cleared():
                return [{"type": "cleared"}]
            case Dropped():
                return [{"type": "note", "text": f"{event.bytes} bytes were left out"}]
            case Result():
                return [{"type": "end", "failed": event.is_error, "message": event.message or event.reason}]
            case _:
                return []

    def _text(self, stream: str, text: str) -> list[dict[str, Any]]:
        part = text[: self._left]
        rows: list[dict[str, Any]] = [{"type": "text", "stream": stream, "text": part}] if part else []
        if len(part) < len(text) and not self._cut:
            self._cut = True
            rows.append({"type": "note", "text": f"more than {MOST_TEXT} characters: the rest is left out"})
        self._left -= len(part)
        return rows

    def _block(self, event: ContentBlock) -> list[dict[str, Any]]:
        block = event.block
        annotations: Any = block.get("annotations")
        if is_continuation(block) and "form" in annotations:
            # More of a form that is too long for one block: the page has the text.
            return []
        kind, text, data = block.get("type"), block.get("text"), block.get("data")
        if kind == "image" and isinstance(data, str) and len(data) <= _MOST_BLOCK:
            row: dict[str, Any] = {"type": "image", "mime": str(block.get("mimeType", "")), "data": data}
            return [{**row, "display": event.display_id, "replaces": event.replaces}]
        forms = _forms(annotations)
        if forms and sum(map(len, forms.values())) <= _MOST_BLOCK:
            row = {"type": "rich", "forms": forms, "text": str(text or "")[:_MOST_BLOCK]}
            return [{**row, "display": event.display_id, "replaces": event.replaces}]
        if isinstance(text, str):
            return self._text(str(block.get("description") or "result"), text)
        return [{"type": "note", "text": f"a {kind} is not shown here"}]


def _forms(annotations: object) -> dict[str, str]:
    """Return the forms of a displayed value that the page shows; what a sandbox wrote may be anything."""
    found = cast("dict[str, object]", annotations) if isinstance(annotations, dict) else {}
    return {name: form for name in _SHOWN if isinstance(form := found.get(name), str)}
