"""The Python environment of kernels in images: the template's packages, under the portable Python.

The template's own environment names the host's interpreter, which is in no image. This one has its programs and a
configuration that name the portable one; its packages are the template's, mounted into it.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final

from sandmeshd.drivers.node.agent_config import ENVIRONMENT
from sandmeshd.drivers.node.builds import building
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.portable_python.bundle import PortablePython
from sandmeshd.drivers.node.portable_python.contents import PORTABLE, fill_environment
from sandmeshd.drivers.node.readability import open_to_all

_BUILDER: Final = "1"


class ImageEnvironments:
    """The environments of one driver's templates, as images have them."""

    def __init__(self, cache: Path, python: PortablePython) -> None:
        self._cache = cache
        self._python = python

    async def _prepared(self, environment: Path) -> Path:
        await self._python.build()
        key = hashlib.sha256(f"{_BUILDER} {self._python.path.name} {environment.name}".encode()).hexdigest()[:20]
        target = self._cache / "image-environments" / key
        async with building(target) as fresh:
            if fresh is not None:
                await asyncio.to_thread(fill_environment, fresh, environment, VERSION)
                await asyncio.to_thread(open_to_all, fresh)
        return target

    async def binds(self, environment: Path) -> list[tuple[str, str, bool]]:
        """Return what shows an environment in this form, and its Python: source, place inside, and whether to write.

        Raises:
            RuntimeUnavailable: The mesh's interpreter cannot be taken into images.
        """
        target = await self._prepared(environment)
        return [
            (str(self._python.path), PORTABLE, False),
            (str(target), ENVIRONMENT, False),
            (str(environment / "lib"), f"{ENVIRONMENT}/lib", False),
        ]
