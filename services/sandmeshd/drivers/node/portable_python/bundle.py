"""Builds the portable Python of a machine: once for each interpreter, below the state directory."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from pathlib import Path
from typing import Final

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.interpreter import VERSION, Interpreter
from sandmeshd.drivers.node.portable_python.contents import fill
from sandmeshd.drivers.node.portable_python.elf import NotPortable
from sandmeshd.drivers.node.readability import open_to_all

_BUILDER: Final = "3"
"""Changes whenever the builder's result for the same interpreter does."""


class PortablePython:
    """The portable form of one interpreter."""

    def __init__(self, cache: Path, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        facts = interpreter.executable.stat()
        key = f"{_BUILDER} {VERSION} {interpreter.executable} {facts.st_size} {facts.st_mtime_ns}"
        self.path = cache / "python" / hashlib.sha256(key.encode()).hexdigest()[:20]
        """Where it is built; a sandbox has it as `PORTABLE`."""

    @property
    def prepared(self) -> bool:
        """Whether it is built."""
        return is_complete(self.path)

    async def build(self) -> None:
        """Build it unless it is there.

        Raises:
            RuntimeUnavailable: The interpreter is linked in a way that does not allow it.
        """
        async with building(self.path) as fresh:
            if fresh is not None:
                await asyncio.to_thread(self._fill, fresh)

    def _fill(self, fresh: Path) -> None:
        try:
            fill(fresh, self._interpreter.executable, VERSION)
            open_to_all(fresh)
        except (NotPortable, OSError, subprocess.SubprocessError) as error:
            fix = f"set SANDMESH_PYTHON to a Python {VERSION} of the system's packages"
            message = f"{self._interpreter.executable} cannot be taken into images: {error}: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from error
