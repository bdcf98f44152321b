"""The Pythons of this machine that a release is installed on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)
_PROGRAM: Final = (
    "import json, platform, sys; print(json.dumps([*sys.version_info[:3], platform.python_implementation()]))"
)


def find_pythons() -> dict[str, Path]:
    """Return an interpreter for each minor version from the oldest supported one on, by `3.11.2`."""
    found: dict[tuple[int, int], tuple[str, Path]] = {}
    for path in _candidates():
        version = _version(path)
        if version and version[:2] >= OLDEST:
            found.setdefault((version[0], version[1]), (".".join(map(str, version)), path))
    return {name: path for _, (name, path) in sorted(found.items())}


def is_for_everyone(python: Path) -> bool:
    """Return whether sandboxes, which have another uid, may read an interpreter's installation."""
    home = python.resolve().parents[1]
    return all(folder.stat().st_mode & 0o001 for folder in (home, *home.parents))


def _candidates() -> Iterator[Path]:
    """Yield interpreters: the system's, then uv's, then pyenv's, then those of the path."""
    folders = [Path("/usr/bin"), Path("/usr/local/bin")]
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local" / "share" / "uv" / "python"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += [path / "bin" for root in (uv, pyenv) for path in sorted(root.glob("*"), reverse=True)]
    folders += [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    for folder in folders:
        for minor in range(OLDEST[1], 20):
            path = folder / f"python3.{minor}"
            if path.is_file() and ".venv" not in path.parts:
                yield path


def _version(python: Path) -> tuple[int, int, int] | None:
    try:
        done = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, micro, implementation = json.loads(done.stdout)
    return (major, minor, micro) if implementation == "CPython" else None
