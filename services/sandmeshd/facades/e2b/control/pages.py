"""Lists of sandboxes: filters, order and pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from sandmesh.mesh import SandboxInfo
from sandmeshd.facades.e2b.control.views import state_of, write_time
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import Marks, read_marks
from sandmeshd.facades.e2b.requests import natural

PAGE: Final = 100
STATES: Final = frozenset({"running", "paused"})


@dataclass(frozen=True)
class ListFilters:
    """What a list is to have."""

    metadata: dict[str, str]
    states: frozenset[str]
    template: str
    oldest_first: bool
    after: str
    limit: int
    started_after: datetime | None = None

    def page(self, infos: list[SandboxInfo]) -> tuple[list[tuple[SandboxInfo, Marks]], str]:
        """Return a page, and where the next begins; empty at the end."""
        marked = [(info, marks) for info in infos if (marks := read_marks(info.labels)) is not None and info.in_use]
        found = [(info, marks) for info, marks in marked if self._matches(info, marks)]
        found.sort(key=lambda one: _place(one[0]), reverse=not self.oldest_first)
        rest = [item for item in found if self._follows(_place(item[0]))] if self.after else found
        page = rest[: self.limit]
        return page, _place(page[-1][0]) if len(rest) > len(page) else ""

    def _matches(self, info: SandboxInfo, marks: Marks) -> bool:
        if self.template and self.template != marks.template:
            return False
        if state_of(info) not in self.states:
            return False
        # Clients know the start as it is shown, which is less exact.
        if self.started_after is not None and datetime.fromisoformat(write_time(info.created)) <= self.started_after:
            return False
        return all(marks.metadata.get(key) == value for key, value in self.metadata.items())

    def _follows(self, place: str) -> bool:
        return place > self.after if self.oldest_first else place < self.after


def read_filters(request: web.Request) -> ListFilters:
    """Read the filters of a list.

    Raises:
        ApiError: One does not fit.
    """
    query = request.query
    states = frozenset(query["state"].split(",")) if query.get("state") else STATES
    if not states <= STATES:
        raise ApiError(400, "state is running, paused, or both with a comma between")
    if query.get("order", "desc") not in ("asc", "desc"):
        raise ApiError(400, "order is asc or desc")
    limit = natural(query.get("limit", PAGE), "limit", PAGE)
    # Clients quote each key and value before they write the pairs as a query.
    pairs = parse_qsl(query.get("metadata", ""), keep_blank_values=True)
    return ListFilters(
        metadata={unquote(key): unquote(value) for key, value in pairs},
        states=states,
        template=query.get("template", ""),
        oldest_first=query.get("order") == "asc",
        after=query.get("nextToken", ""),
        limit=limit or PAGE,
        started_after=_moment(query.get("startedAfter", "")),
    )


def _moment(written: str) -> datetime | None:
    """Read a moment as RFC 3339 has it; one without an offset is in UTC.

    Raises:
        ApiError: It is not one.
    """
    if not written:
        return None
    try:
        # In a query a plus that was not quoted is a space.
        found = datetime.fromisoformat(written.replace(" ", "+") if "T" in written else written)
    except ValueError:
        raise ApiError(400, "startedAfter is a time like 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _place(info: SandboxInfo) -> str:
    """Return a text that sorts by a sandbox's start."""
    return f"{info.created.timestamp():020.6f}.{public_id(info.sandbox_id)}"
