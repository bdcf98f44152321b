"""The build of a template's Python environment: once for all meshes of a user, keyed by its inputs."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import importlib.util
import json
import os
import platform
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import ClassVar

from sandmesh.errors import RuntimeUnavailable, TemplateBuildFailed
from sandmeshd.drivers.node.agent_config import ENVIRONMENT
from sandmeshd.drivers.node.builds import BuildStep, building, is_being_built, is_complete, with_growth
from sandmeshd.drivers.node.commands import RunningCommand, running
from sandmeshd.drivers.node.interpreter import VERSION, Interpreter
from sandmeshd.drivers.node.readability import open_to_all
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import PythonEnvironment

BUILDER = "1"
"""Changes whenever the builder's result for the same inputs does."""

PIP = (
    *("--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--only-binary", ":all:", "--no-compile"),
    *("--no-warn-script-location", "--root-user-action", "ignore"),
)
FULL_DISK = os.strerror(errno.ENOSPC)
FETCH_LINES = ("Collecting ", "Processing ")
"""Prefixes of pip's lines that name a package, the second for an index that is a directory."""

# The progress at which each part ends, measured on two cores with a cold cache.
VENV, COLLECTED, INSTALLED, COMPILED = 0.03, 0.45, 0.65, 0.95


class PythonEnvironments:
    """Builds the environments of one driver's templates, on an interpreter of this machine."""

    flavor: ClassVar[tuple[str, ...]] = ("plain",)
    """What distinguishes its environments from those of other builders."""

    def __init__(self, cache: Path, interpreter: Interpreter) -> None:
        self._cache = cache
        self._interpreter = interpreter

    def path(self, python: PythonEnvironment) -> Path:
        """Return the path of an environment, built or not: one that does more for homes serves, too."""
        richer = self._path(python, ())
        return richer if is_complete(richer) else self._path(python, self.flavor)

    def _path(self, python: PythonEnvironment, flavor: tuple[str, ...]) -> Path:
        inputs = [BUILDER, list(python.packages), python.warm_up, VERSION, platform.machine()]
        inputs.append(str(self._interpreter.executable))
        inputs += ["complete"] if python.complete else []
        inputs += flavor
        key = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:20]
        return self._cache / "environments" / key

    async def build(self, python: PythonEnvironment) -> AsyncGenerator[BuildStep]:
        """Build an environment unless it exists, yielding the progress.

        Raises:
            TemplateBuildFailed: A step failed; `facts["detail"]` has its last lines.
            RuntimeUnavailable: The mesh's own Python has no pip.
        """
        target = self.path(python)
        if is_being_built(target):
            yield BuildStep("waiting for another process that builds it", -1)
        async with building(target) as fresh:
            if fresh is None:
                return
            async with aclosing(with_growth(self._fill(fresh, python), fresh)) as steps:
                async for step in steps:
                    yield step

    async def _fill(self, fresh: Path, python: PythonEnvironment) -> AsyncGenerator[BuildStep]:
        yield BuildStep("making an environment", 0)
        await run_step([str(self._interpreter.executable), "-I", "-m", "venv", "--without-pip", str(fresh)])
        yield BuildStep("looking for packages", VENV)
        async with aclosing(_install(fresh, python)) as steps:
            async for step in steps:
                yield step
        yield BuildStep("compiling", INSTALLED)
        await asyncio.to_thread(_relocate, fresh)
        await _compile(fresh)
        yield BuildStep("filling caches", COMPILED)
        await self._warm_up(fresh, python.warm_up)

    async def _warm_up(self, fresh: Path, statement: str) -> None:
        """Fill the caches that a home begins with; here there are none."""
        (fresh / "home").mkdir()
        await asyncio.to_thread(open_to_all, fresh)


async def run_step(arguments: list[str]) -> None:
    """Run a program of a build.

    Raises:
        TemplateBuildFailed: It failed; the facts have its last lines.
    """
    # Sandboxes inherit no variables of this process: bwrap clears them.
    async with running(arguments, cwd=Path("/")) as command:
        if not await command.succeeded():
            raise _failed(command)


async def _compile(fresh: Path) -> None:
    async with running(_compile_arguments(fresh), cwd=Path("/")) as command:
        # Packages have modules that only other versions of Python can compile.
        if not await command.succeeded() and FULL_DISK in command.detail:
            raise _failed(command)


async def _install(fresh: Path, python: PythonEnvironment) -> AsyncGenerator[BuildStep]:
    if importlib.util.find_spec("pip") is None:
        fix = f"install pip for {sys.executable} ({sys.executable} -m ensurepip, or: uv pip install pip)"
        raise RuntimeUnavailable(f"environments are built with pip, which is not installed: {fix}", {"fix": fix})
    requirements = python.packages
    listing = fresh / "requirements.txt"
    listing.write_text("\n".join(requirements) + "\n")
    pip = [sys.executable, "-I", "-m", "pip", "--python", str(fresh / "bin" / "python"), "install", *PIP]
    pip += ["--no-deps"] if python.complete else []
    collected = 0
    # What pip downloads is on the environment's own disk, and counts as progress.
    downloads = fresh / "downloads"
    downloads.mkdir()
    async with running([*pip, "-r", str(listing)], env={**os.environ, "TMPDIR": str(downloads)}) as command:
        async for line in command.lines():
            collected += line.startswith(FETCH_LINES)
            step = _step(line, collected / len(requirements))
            if step is not None:
                yield step
        if not await command.succeeded():
            raise _failed(command)
    await asyncio.to_thread(remove_tree, downloads)


def _step(line: str, share: float) -> BuildStep | None:
    words = line.split()
    if line.startswith(FETCH_LINES):
        name = words[1].rpartition("/")[2].partition("=")[0].partition("-")[0]
        return BuildStep(f"fetching {name}", min(VENV + share * (COLLECTED - VENV), COLLECTED))
    if line.startswith("Installing collected packages"):
        return BuildStep(f"installing {len(words) - 3} packages", COLLECTED)
    return None


def _failed(command: RunningCommand) -> TemplateBuildFailed:
    detail = command.detail
    if FULL_DISK in detail:
        fix = f"free space below the state directory and in {tempfile.gettempdir()}"
        message = f"the template's environment could not be built, since the disk is full: {fix}"
        return TemplateBuildFailed(message, {"detail": detail, "fix": fix})
    last = detail.splitlines()[-1]
    return TemplateBuildFailed(f"the template's environment could not be built: {last}", {"detail": detail})


def _compile_arguments(fresh: Path) -> list[str]:
    # It is mounted read-only: what is not compiled now would be compiled in every sandbox again.
    # The packages' own tests, a third of it, are never imported.
    library = fresh / "lib"
    options = ["-q", "-j", "0", "-x", r"[/\\]tests[/\\]", "-s", str(fresh), "-p", ENVIRONMENT]
    return [str(fresh / "bin" / "python"), "-I", "-m", "compileall", *options, str(library)]


def _relocate(fresh: Path) -> None:
    """Replace the build's path in scripts by the path inside sandboxes."""
    old, new = str(fresh).encode(), ENVIRONMENT.encode()
    for path in (*(fresh / "bin").iterdir(), fresh / "pyvenv.cfg"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if old in data:
                path.write_bytes(data.replace(old, new))
