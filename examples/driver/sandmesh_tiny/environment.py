"""Builds the Python environments of templates with pip, once for all meshes of a user."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.interpreter import Interpreter
from sandmeshd.drivers.node.readability import open_to_all
from sandmeshd.templates import Template


class Environments:
    """The environments below a directory."""

    def __init__(self, folder: Path, interpreter: Interpreter) -> None:
        self._folder = folder
        self._interpreter = interpreter

    def path(self, template: Template) -> Path:
        """Return where a template's environment is or will be."""
        key = repr((self._interpreter.executable, template.python.requirements))
        return self._folder / hashlib.sha256(key.encode()).hexdigest()[:20]

    def is_built(self, template: Template) -> bool:
        """Return whether a template's environment is complete."""
        return is_complete(self.path(template))

    async def build(self, template: Template) -> None:
        """Build a template's environment unless it exists.

        Raises:
            TemplateBuildFailed: A step failed; `facts["detail"]` has its last lines.
        """
        async with building(self.path(template)) as fresh:
            if fresh is not None:
                await _run(str(self._interpreter.executable), "-I", "-m", "venv", "--without-pip", str(fresh))
                pip = (sys.executable, "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", "--quiet")
                await _run(*pip, *template.python.requirements)
                await asyncio.to_thread(open_to_all, fresh)


async def _run(*command: str) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise TemplateBuildFailed(f"{command[0]} failed", {"detail": output.decode("utf-8", "replace")[-2000:]})
