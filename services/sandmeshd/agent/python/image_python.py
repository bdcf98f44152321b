"""Kernels of an image's own Python, where that has IPython; else kernels are of the template's Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.python.kernels import KernelProcess, open_kernel, open_program
from sandmeshd.agent.userland.languages.own_python import START

_SITE: Final = str(Path(__file__).parents[3])
_NAMES: Final = ("python3", "python")
_FOLDERS: Final = ("lib", "lib64", "local/lib")
_PACKAGES: Final = ("site-packages", "dist-packages")


def find_python(environment: Mapping[str, str]) -> str:
    """Return the first Python of PATH for which IPython is installed; empty where there is none."""
    return next((found for found in _programs(environment) if _has_ipython(found, environment)), "")


def _programs(environment: Mapping[str, str]) -> Iterator[str]:
    for directory in environment.get("PATH", "").split(":"):
        for name in _NAMES:
            # Relative ones would be another program in each directory.
            path = f"{directory}/{name}"
            if directory.startswith("/") and os.access(path, os.X_OK):
                yield path


def _has_ipython(program: str, environment: Mapping[str, str]) -> bool:
    # Without running it: most images have a Python, and few have IPython.
    prefixes = [os.path.dirname(os.path.dirname(program))]  # noqa: PTH120 - pathlib would normalize the path
    if not os.path.exists(f"{prefixes[0]}/pyvenv.cfg"):  # noqa: PTH110 - as above
        prefixes.append(os.path.dirname(os.path.dirname(os.path.realpath(program))))  # noqa: PTH120
        prefixes.append(f"{environment.get('HOME', '')}/.local")
    return any(_is_below(f"{prefix}/{folder}") for prefix in prefixes for folder in _FOLDERS)


def _is_below(folder: str) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        versions = [entry.name for entry in entries if entry.name.startswith("python3")]
        return any(
            os.path.isdir(f"{folder}/{version}/{packages}/IPython")  # noqa: PTH112 - as above
            for version in versions
            for packages in _PACKAGES
        )
    return False


async def open_python(processes: ProcessSpawner, environment: Mapping[str, str], cwd: str) -> KernelProcess:
    """Start a kernel of the image's Python, or of the template's where that lacks what kernels need.

    Raises:
        ToolFailure: No process could be started.
    """
    program = find_python(environment)
    if program:
        # A damaged, too old or too new IPython must not prevent the kernel from starting.
        with suppress(ToolFailure):
            kernel = await open_program(processes, [program, "-c", START, _SITE], environment, cwd)
            kernel.program = program
            return kernel
    return await open_kernel(processes, cwd)
