"""What `sandmesh top` shows, for any size of a terminal; nothing here asks a mesh."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandmesh.mesh import SandboxEvent, SandboxInfo
from sandmesh.mesh.records import Capacity, MeshHealth
from sandmesh.results import CallSummary, SandboxStats
from sandmeshd.cli.terminal.output import escape_controls

Action = Callable[[], Awaitable[object]]

HELP: Final = "arrows move  o order  s shell  p pause  x kill  a allow  u use  c calls  q quit"
_MESSAGE: Final = 400
"""The longest message: the longest name of a host is shown whole, since it is allowed whole."""
EVENTS: Final = 6
"""How many events, or calls, of the selected sandbox are shown."""
_STYLES = {"READY": "green", "PAUSED": "cyan", "FAILED": "red", "LOST": "red"}
_LATEST = datetime.max.replace(tzinfo=UTC)

ORDERS: Final[dict[str, Callable[[SandboxInfo], tuple[object, ...]]]] = {
    "newest": lambda one: (not one.in_use, -one.created.timestamp()),
    "oldest": lambda one: (not one.in_use, one.created),
    "user": lambda one: (one.user_id, one.sandbox_id),
    "lease": lambda one: (one.lease.expires if one.lease else _LATEST,),
}
"""How sandboxes may be ordered; those in use come before those of pools."""
BY_USE: Final = "most used"
"""The order that needs to ask the sandboxes."""
_COLUMNS: Final = (("SANDBOX", 20), ("TEMPLATE", 12), ("STATE", 8))


@dataclass
class TopState:
    """What is known of a mesh, and what a person has chosen."""

    address: str
    sandboxes: Sequence[SandboxInfo] = ()
    capacity: Capacity | None = None
    health: MeshHealth | None = None
    events: Sequence[SandboxEvent] = ()
    stats: SandboxStats | None = None
    calls: Sequence[CallSummary] | None = None
    """The calls of the selected sandbox, shown in place of its events."""
    uses: Mapping[str, SandboxStats] = field(default_factory=dict[str, SandboxStats])
    """What sandboxes use, by id, while they are ordered by it."""
    selected: str = ""
    order: str = "newest"
    message: str = ""
    """What was done last, what failed, or what is asked."""
    asks: Action | None = field(default=None, repr=False)
    """What the key y does."""
    offers: Sequence[tuple[str, str]] = ()
    """Sandboxes with hosts that they were refused: the first is asked about, the key a goes to the next."""

    @property
    def rows(self) -> list[SandboxInfo]:
        """The sandboxes in their order."""
        return sorted(self.sandboxes, key=self._use if self.order == BY_USE else ORDERS[self.order])

    def _use(self, one: SandboxInfo) -> tuple[object, ...]:
        found = self.uses.get(one.sandbox_id)
        known = (0.0, 0) if found is None else (-found.cpu, -found.memory_bytes)
        return (not one.in_use, found is None, *known, one.sandbox_id)

    @property
    def at(self) -> int:
        """The row of the selected sandbox; the first where it is gone."""
        return next((at for at, one in enumerate(self.rows) if one.sandbox_id == self.selected), 0)

    @property
    def chosen(self) -> SandboxInfo | None:
        """The selected sandbox, None where there is none at all."""
        rows = self.rows
        return rows[self.at] if rows else None

    def move(self, by: int) -> None:
        """Select another row."""
        rows = self.rows
        if rows:
            self.selected = rows[max(0, min(len(rows) - 1, self.at + by))].sandbox_id
            self.events, self.stats, self.calls = (), None, None

    def next_order(self) -> None:
        """Order by the next of the ways there are."""
        names = [*ORDERS, BY_USE]
        self.order = names[(names.index(self.order) + 1) % len(names)]


def render(state: TopState, width: int, height: int) -> RenderableType:
    """Return the whole screen."""
    details = _details(state)
    last = _plain(state.message, _MESSAGE) or HELP[:width]
    room = max(1, height - 5 - len(details) - _nodes(state).plain.count("\n") - (len(last) - 1) // width)
    return Group(_head(state), _nodes(state), _table(state, room, width), *details, Text(last, style="bold"))


def _head(state: TopState) -> Text:
    used = sum(sandbox.in_use for sandbox in state.sandboxes)
    limit = f" of {state.capacity.limit}" if state.capacity is not None else ""
    text = f"{_plain(state.address, 30)}  {len(state.sandboxes)}{limit} sandboxes, {used} in use, {state.order} first"
    return Text(text, style="reverse", no_wrap=True, overflow="ellipsis")


def _nodes(state: TopState) -> Text:
    if state.health is None:
        return Text("nodes: not for this token", style="dim")
    counts: Mapping[str, int] = {} if state.capacity is None else state.capacity.nodes
    words = [
        f"{_plain(node.node_id or node.name, 20)} {node.driver} {counts.get(node.node_id, 0)}"
        f"{'' if node.in_rotation else ' OUT'}"
        for node in state.health.nodes[:4]
    ]
    more = f" and {len(state.health.nodes) - 4} more" if len(state.health.nodes) > 4 else ""
    troubles = "".join(
        f"\n! {_plain(trouble.part, 40)}: {_plain(trouble.detail, 200)}" for trouble in state.health.troubles[:2]
    )
    return Text(f"nodes: {', '.join(words) or 'none'}{more}{troubles}", no_wrap=True, overflow="ellipsis")


def _table(state: TopState, room: int, width: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), width=width, pad_edge=False, header_style="bold")
    by_use = state.order == BY_USE
    for name, share in (*_COLUMNS, *((("CPU", 6), ("MEMORY", 9)) if by_use else (("AGE", 6), ("LEFT", 6)))):
        table.add_column(name, no_wrap=True, width=share, overflow="ellipsis")
    table.add_column("USER", no_wrap=True, ratio=1, overflow="ellipsis")
    rows, at = state.rows, state.at
    first = max(0, min(at - room // 2, len(rows) - room))
    now = datetime.now(UTC)
    for number, one in enumerate(rows[first : first + room], first):
        numbers = _used(state.uses.get(one.sandbox_id)) if by_use else _times(one, now)
        words = (one.sandbox_id, one.image or one.template, one.state.lower(), *numbers, one.user_id)
        style = "reverse" if number == at else _STYLES.get(one.state, "")
        table.add_row(*(Text(_plain(word, 60)) for word in words), style=style)
    return table


def _times(one: SandboxInfo, now: datetime) -> tuple[str, str]:
    """Return a sandbox's age, and what is left of its lease."""
    left = (one.lease.expires - now).total_seconds() if one.lease else None
    return _age((now - one.created).total_seconds()), "pool" if left is None else _age(left)


def _used(found: SandboxStats | None) -> tuple[str, str]:
    """Return processors and memory in use."""
    return ("-", "-") if found is None else (f"{found.cpu:.2f}", f"{found.memory_bytes >> 20} MiB")


def _details(state: TopState) -> list[Text]:
    """Return what is shown of the selected sandbox."""
    one = state.chosen
    if one is None:
        return [Text("There is no sandbox. `sandmesh run -- echo hello` makes one.", style="dim")]
    lines = [Text(f"{_plain(one.sandbox_id, 40)} on {_plain(one.node_id, 24)}", style="bold")]
    if state.stats is not None:
        memory = state.stats.memory_bytes >> 20
        used = f"{state.stats.cpu:.2f} processors, {memory} MiB, {state.stats.processes} processes"
        lines.append(Text(f"  uses {used} (to ask is a use of it)"))
    if state.calls is not None:
        return [*lines, *_calls(state.calls)]
    for event in state.events[-EVENTS:]:
        took = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in event.phases.items())
        words = "  ".join(word for word in (event.kind, event.reason, took, f"by {event.actor}") if word)
        when = event.time.astimezone().strftime("%H:%M:%S")
        lines.append(Text(f"  {when}  {_plain(words, 300)}", no_wrap=True, overflow="ellipsis"))
    return lines


def _calls(calls: Sequence[CallSummary]) -> list[Text]:
    lines = [Text("  its newest calls (to ask is a use of it); c shows its events" if calls else "  no calls yet")]
    for call in calls[-EVENTS:]:
        took = "runs" if call.seconds is None else f"{call.seconds:.3f} s"
        ended = "error" if call.is_error and call.reason == "EXITED" else call.reason.lower()
        words = f"{call.started.astimezone():%H:%M:%S}  {_plain(call.tool, 60)}  {took}  {_plain(ended, 20)}"
        lines.append(Text(f"  {words}", no_wrap=True, overflow="ellipsis"))
    return lines


def _plain(text: str, most: int) -> str:
    return escape_controls(text).replace("\n", " ")[:most]


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
