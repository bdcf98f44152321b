"""What finds the addresses of hosts that sandboxes name."""

from __future__ import annotations

from typing import Protocol


class Resolver(Protocol):
    """Gives a host's addresses, asked once for each connection."""

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses of a name, the preferred one first.

        Raises:
            OSError: It has none, or no server could be asked.
        """
        ...
