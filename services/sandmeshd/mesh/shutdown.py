"""What a mesh does with its sandboxes when it ends in an orderly way."""

from __future__ import annotations

import structlog

from sandmesh.errors import SandmeshError
from sandmeshd.allocator.maintenance.evacuation import Evacuation

log = structlog.get_logger()

SECONDS = 15.0


class Ending:
    """Whether sandboxes are kept; it may be changed as long as the mesh runs."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep

    async def run(self, evacuation: Evacuation) -> None:
        """Remove every sandbox unless they are kept; what cannot be removed now, the next start removes."""
        if self.keep:
            return
        try:
            await evacuation.run(SECONDS)
        except (SandmeshError, TimeoutError) as error:
            log.warning("some sandboxes are left; the next start removes them", error=str(error))
