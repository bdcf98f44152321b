"""What a cell writes, shows and raises, as messages of Jupyter's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, cast

from sandmesh.events import CallEvent, Cleared, ContentBlock, Dropped, Output, Result, is_continuation, join_blocks
from sandmeshd.facades.cells import mime_bundle

Content: TypeAlias = dict[str, Any]

_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
"""A form that clients could not show: it names a model of a comm, and kernels here have none."""

_TRACEBACK: Final = "stderr"
"""How a block is described that is a traceback, which the result has in parts."""


class CellOutput:
    """Turns the events of a cell into messages; a block is held until it is known whether it is the cell's value."""

    def __init__(self, count: int, *, ends_in_value: bool) -> None:
        self._count = count
        self._ends_in_value = ends_in_value
        self._held: ContentBlock | None = None
        self._more: list[Content] = []
        """What continues it."""
        self.error: Content | None = None
        """What the cell raised, as the content of an `error`; None where it raised nothing."""
        self.lost = False
        """Whether the cell's sandbox has ended."""

    def read(self, event: CallEvent) -> Iterator[tuple[str, Content]]:
        """Yield the types and contents of an event's messages."""
        if isinstance(event, ContentBlock) and is_continuation(event.block):
            self._more.append(event.block)
            return
        if isinstance(event, Output | ContentBlock | Cleared | Result):
            yield from self._release(is_last=isinstance(event, Result) and not event.is_error)
        match event:
            case Output():
                yield "stream", {"name": event.stream, "text": event.text}
            case ContentBlock():
                self._held = None if event.block.get("description") == _TRACEBACK else event
            case Cleared():
                yield "clear_output", {"wait": False}
            case Dropped():
                yield "stream", {"name": "stderr", "text": f"[{event.bytes} bytes of output were dropped]\n"}
            case Result() if event.is_error:
                self.error, self.lost = error_of(event), event.reason == "SANDBOX_LOST"
                yield "error", self.error
            case _:
                return

    def _release(self, *, is_last: bool) -> Iterator[tuple[str, Content]]:
        held, more, self._held, self._more = self._held, self._more, None, []
        if held is None:
            return
        join_blocks(held.block, more)
        forms = {kind: form for kind, form in mime_bundle(held.block).items() if kind != _WIDGET}
        content: Content = {"data": forms, "metadata": Content(), "transient": Content()}
        if held.display_id is not None:
            content["transient"] = {"display_id": held.display_id}
            yield "update_display_data" if held.replaces else "display_data", content
        elif is_last and self._ends_in_value:
            yield "execute_result", {**content, "execution_count": self._count}
        else:
            yield "display_data", content


def error_of(result: Result) -> Content:
    """Return the content of an `error`."""
    # The sandbox made it, and may have made anything.
    found: object = (result.structured or {}).get("error")
    raised = cast("Content", found) if isinstance(found, dict) else Content()
    name, value = raised.get("name") or result.reason.title(), raised.get("value", result.message)
    lines: object = raised.get("traceback")
    shown = cast("list[object]", lines) if isinstance(lines, list) and lines else [result.message]
    return {"ename": str(name), "evalue": str(value), "traceback": [str(line) for line in shown]}
