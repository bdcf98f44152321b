"""What a mesh does with its sandboxes when it ends in an orderly way."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.allocator.maintenance.evacuation import Evacuation

log = structlog.get_logger()

LEFT = "left"
"""The file beside the services' sockets in which a mesh that ends notes how many sandboxes it has still to delete."""

UNDELETED = "undeleted"
"""The file beside the mesh's log in which a mesh that has ended notes why sandboxes could not be deleted, by id."""

SECONDS = 30.0
"""How long no deletion may end before the rest is left to the next start."""


class Ending:
    """Whether sandboxes are kept; it may be changed as long as the mesh runs."""

    def __init__(self, keep: bool, left: Path, undeleted: Path) -> None:
        """Note in the file `left` how many sandboxes are to be deleted, and in `undeleted` why some were not."""
        self.keep = keep
        self._left = left
        self._undeleted = undeleted

    async def run(self, evacuation: Evacuation) -> None:
        """Remove every sandbox unless they are kept; what cannot be removed now, the next start removes."""
        self._undeleted.unlink(missing_ok=True)
        if self.keep:
            return
        try:
            # In a task by itself: before Python 3.11.3 no timeout works in one that was cancelled, as the mesh's is.
            await asyncio.create_task(evacuation.run(SECONDS, self._note))
        except (SandmeshError, TimeoutError) as error:
            log.warning("some sandboxes are left; the next start removes them", error=str(error))
            with suppress(SandmeshError, OSError):
                self._undeleted.write_text(json.dumps(await asyncio.create_task(evacuation.troubles())))
        finally:
            self._left.unlink(missing_ok=True)

    def _note(self, left: int) -> None:
        # Without room for it, or a descriptor, only the progress is not seen.
        with suppress(OSError):
            self._left.write_text(str(left))


def sandboxes_left(file: Path) -> int | None:
    """Return how many sandboxes a mesh that ends has still to delete, None where it does not say."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def undeleted_sandboxes(file: Path) -> dict[str, str]:
    """Return why sandboxes of a mesh that has ended could not be deleted, by id; empty where it does not say."""
    try:
        found: dict[str, str] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found
