"""The open links to sandboxes, and which of them are in use."""

from __future__ import annotations

import asyncio

from sandmeshd.agentlink.link import AgentLink


class Links(dict[str, AgentLink]):
    """The open links by sandbox; those that nobody uses cost nothing when the used ones are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.in_use = asyncio.Event()
        """Set while there is something for `take_used` to return."""
        self._used: dict[str, AgentLink] = {}

    def add(self, link: AgentLink) -> None:
        """Add a link that nobody used yet."""
        link.heartbeat.on_use = self._note_use
        self[link.sandbox_id] = link

    def _note_use(self, link: AgentLink) -> None:
        self._used[link.sandbox_id] = link
        self.in_use.set()

    def take_used(self) -> set[str]:
        """Return the sandboxes whose links carried anything since the last time, or do now."""
        used, self._used = self._used, {}
        self.in_use.clear()
        for link in used.values():
            if self.get(link.sandbox_id) is link and link.is_awaited:
                self._note_use(link)
            else:
                link.heartbeat.used = False
        return set(used)
