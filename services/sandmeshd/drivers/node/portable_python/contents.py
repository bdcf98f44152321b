"""Fills a directory with the portable form of a Python.

It is also a program that needs nothing but the standard library, since the agent's image has no more: `contents.py
TARGET ENVIRONMENT`, in the image's build, writes the script `TARGET/install`, by which pods whose image has no agent
copy everything into a directory. Nothing of it is in the image twice: what is not there yet, the script makes by
`contents.py program DIRECTORY`.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from sandmeshd.drivers.node.portable_python.elf import loader_of, redirected

PORTABLE: Final = "/opt/sandmesh/python"
"""Where sandboxes whose root is an image have it."""
_AGENT_CODE: Final = "/opt/sandmesh/site /opt/sandmesh/mcp"
"""What runs by it in the agent's image."""
AUTHORITIES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The certificates that an image of the agent trusts."""
_MODULE: Final = "sandmeshd.drivers.node.portable_python.contents"
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


def fill(fresh: Path, executable: Path, version: str) -> None:
    """Fill an empty directory with everything: program, libraries and the standard library."""
    standard = fresh / "lib" / f"python{version}"
    for folder in _standard_library(executable):
        shutil.copytree(folder, standard, symlinks=False, ignore=_unneeded, dirs_exist_ok=True)
    compileall.compile_dir(standard, quiet=2, stripdir=str(fresh), prependdir=PORTABLE)
    fill_program(fresh, executable, version)
    for name, path in _libraries(executable, [standard]):
        shutil.copyfile(path, fresh / "lib" / name)


def fill_program(fresh: Path, executable: Path, version: str) -> None:
    """Fill a directory with the program and its loader."""
    data = executable.read_bytes()
    programs, libraries = fresh / "bin", fresh / "lib"
    programs.mkdir()
    libraries.mkdir(exist_ok=True)
    program = programs / f"python{version}"
    program.write_bytes(redirected(data, _LOADER, str(Path(_LOADER).parent)))
    program.chmod(0o755)
    for name in ("python", "python3"):
        (programs / name).symlink_to(program.name)
    loader = libraries / Path(_LOADER).name
    loader.write_bytes(Path(loader_of(data)).read_bytes().replace(_PRELOAD, _NOTHING))
    loader.chmod(0o755)


def fill_environment(fresh: Path, environment: Path, version: str) -> None:
    """Fill an empty directory with an environment's programs, for the portable Python; its packages come to `lib`."""
    (fresh / "lib").mkdir()
    programs = fresh / "bin"
    programs.mkdir()
    for path in (environment / "bin").iterdir():
        if path.is_file() and not path.is_symlink():
            (programs / path.name).write_bytes(path.read_bytes())
            (programs / path.name).chmod(0o755)
    for name in ("python", "python3", f"python{version}"):
        (programs / name).symlink_to(f"{PORTABLE}/bin/python{version}")
    settings = f"home = {PORTABLE}/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    (fresh / "pyvenv.cfg").write_text(settings)


def _standard_library(executable: Path) -> list[str]:
    done = subprocess.run([executable, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=20, check=True)
    return list(dict.fromkeys(json.loads(done.stdout)))


def _unneeded(_folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT or name.startswith("config-")}


def _libraries(executable: Path, standard: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the shared libraries of a Python and its standard library, each with its path on this machine."""
    found: dict[str, str] = {}
    loader = loader_of(executable.read_bytes())
    for program in (executable, *(path for folder in standard for path in folder.rglob("*.so"))):
        # The loader itself says what it would load; see ld.so(8).
        done = subprocess.run([loader, "--list", program], capture_output=True, text=True, timeout=20, check=False)
        found |= {match["name"]: match["path"] for match in _FOUND.finditer(done.stdout)}
    folders = {os.path.dirname(path) for path in found.values()}  # noqa: PTH120 - of a loader's own words
    for name in (*_USUAL, *_RUN_TIME):
        path = next((f"{folder}/{name}" for folder in sorted(folders) if Path(folder, name).exists()), "")
        if path and name not in found:
            found[name] = path
    yield from found.items()


def main() -> None:
    """Run the command that the arguments name."""
    executable = Path(sys.executable).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.argv[1] == "program":
        fill_program(Path(sys.argv[2]), executable, version)
        return
    target, environment = map(Path, sys.argv[1:])
    (target / "env").mkdir(parents=True)
    fill_environment(target / "env", environment, version)
    own = target / "code" / Path(*_MODULE.split(".")[:-1])
    shutil.copytree(Path(__file__).parent, own, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "install").write_text(_script(target, environment, version, executable))


def _script(target: Path, environment: Path, version: str, executable: Path) -> str:
    """Return what copies all that a pod needs into the directory that is its argument."""
    standard = [*map(Path, _standard_library(executable))]
    copies = [
        f"cp -a {target}/env {_AGENT_CODE} .",
        f"mkdir -p python/lib/python{version} trusted",
        *(f"cp -L {shlex.quote(path)} python/lib/{name}" for name, path in _libraries(executable, standard)),
        *(f"cp -a {shlex.quote(str(folder))}/. python/lib/python{version}/" for folder in standard),
        f"PYTHONPATH={target}/code {executable} -B -S -m {_MODULE} program python",
        f"cp -a {environment}/lib/. env/lib/",
        f"cp -L {AUTHORITIES} trusted/",
    ]
    return "\n".join(["#!/bin/sh", "set -eu", 'cd "$1"', *copies, ""])


if __name__ == "__main__":
    main()
