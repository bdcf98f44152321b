"""What the sandboxes of a mesh use: asked of some at a time, each for a short while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmesh.results import SandboxStats

MOST: Final = 100
"""How many sandboxes are asked: the newest."""
SECONDS: Final = 10.0
"""How often they are asked."""
_SIMULTANEOUS: Final = 8
_PATIENCE_SECONDS: Final = 3.0


async def read_uses(
    sandboxes: Sequence[SandboxInfo], open_box: Callable[[str], SandboxAsync]
) -> dict[str, SandboxStats]:
    """Return what sandboxes in use use, by id; without those that do not answer, or are paused."""
    running = [box for box in sandboxes if box.in_use and box.state == "READY"]
    newest = sorted(running, key=lambda box: box.created, reverse=True)[:MOST]
    places, found = asyncio.Semaphore(_SIMULTANEOUS), dict[str, SandboxStats]()

    async def ask(sandbox_id: str) -> None:
        async with places:
            with suppress(SandmeshError, TimeoutError):
                async with asyncio.timeout(_PATIENCE_SECONDS), open_box(sandbox_id) as box:
                    found[sandbox_id] = await box.stats()

    await asyncio.gather(*(ask(box.sandbox_id) for box in newest))
    return found
