"""Builds the portable Python of a machine: once for each interpreter, below the state directory."""

from __future__ import annotations

import asyncio
import compileall
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.interpreter import VERSION, Interpreter
from sandmeshd.drivers.node.portable_python.elf import NotPortable, loader_of, redirected
from sandmeshd.drivers.node.readability import open_to_all

PORTABLE: Final = "/opt/sandmesh/python"
"""Where sandboxes whose root is an image have it."""
_BUILDER: Final = "3"
"""Changes whenever the builder's result for the same interpreter does."""
_LOADER: Final = f"{PORTABLE}/lib/loader.so"
_PRELOAD: Final = b"/etc/ld.so.preload"
"""What the loader loads into each program: of an image it would come into the agent, before that has left a right."""
_NOTHING: Final = b"/dev/null/preload."
"""Where nothing can be, whatever an image has; as long as the other."""
_USUAL: Final = (
    *("libgcc_s.so.1", "libstdc++.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libutil.so.1", "libpthread.so.0"),
    *("libz.so.1", "libatomic.so.1"),
)
"""What binary packages of Python expect of any machine: https://peps.python.org/pep-0599/, without displays."""
_RUN_TIME: Final = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""What the C library itself loads when it is first needed."""
_LEFT_OUT: Final = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
)
_FOUND: Final = re.compile(r"^\s*(?P<name>\S+) => (?P<path>/\S+) \(", re.MULTILINE)
_ASK: Final = "import json, sysconfig as s; print(json.dumps([s.get_path('stdlib'), s.get_path('platstdlib')]))"


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
            _fill(fresh, self._interpreter.executable)
        except (NotPortable, OSError, subprocess.SubprocessError) as error:
            fix = f"set SANDMESH_PYTHON to a Python {VERSION} of the system's packages"
            message = f"{self._interpreter.executable} cannot be taken into images: {error}: {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from error


def _fill(fresh: Path, executable: Path) -> None:
    data = executable.read_bytes()
    loader = Path(loader_of(data))
    programs, libraries = fresh / "bin", fresh / "lib"
    programs.mkdir()
    libraries.mkdir()
    program = programs / f"python{VERSION}"
    program.write_bytes(redirected(data, _LOADER, str(Path(_LOADER).parent)))
    program.chmod(0o755)
    for name in ("python", "python3"):
        (programs / name).symlink_to(program.name)
    standard = libraries / f"python{VERSION}"
    for folder in _standard_library(executable):
        shutil.copytree(folder, standard, symlinks=False, ignore=_unneeded, dirs_exist_ok=True)
    compileall.compile_dir(standard, quiet=2, stripdir=str(fresh), prependdir=PORTABLE)
    (libraries / Path(_LOADER).name).write_bytes(loader.read_bytes().replace(_PRELOAD, _NOTHING))
    (libraries / Path(_LOADER).name).chmod(0o755)
    for name, path in _libraries(loader, [executable, *standard.rglob("*.so")]):
        shutil.copyfile(path, libraries / name)
    open_to_all(fresh)


def _standard_library(executable: Path) -> list[str]:
    done = subprocess.run([executable, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=20, check=True)
    return list(dict.fromkeys(json.loads(done.stdout)))


def _unneeded(_folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT or name.startswith("config-")}


def _libraries(loader: Path, programs: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the shared libraries of programs, each with its path on this machine."""
    found: dict[str, str] = {}
    for program in programs:
        # The loader itself says what it would load; see ld.so(8).
        done = subprocess.run([loader, "--list", program], capture_output=True, text=True, timeout=20, check=False)
        found |= {match["name"]: match["path"] for match in _FOUND.finditer(done.stdout)}
    folders = {os.path.dirname(path) for path in found.values()}  # noqa: PTH120 - of a loader's own words
    for name in (*_USUAL, *_RUN_TIME):
        path = next((f"{folder}/{name}" for folder in sorted(folders) if Path(folder, name).exists()), "")
        if path and name not in found:
            found[name] = path
    yield from found.items()
