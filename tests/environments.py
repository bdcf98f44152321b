"""Environments with packages that this repository's own environment does not have, kept outside of the clone."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sandmeshd.runtime.paths import default_state_directory

ROOT = Path(__file__).resolve().parents[1]
ATTEMPTS, SECONDS = 3, 400
UV = "uv==0.13.9"


def newer_python() -> Path | None:
    """Return an interpreter of Python 3.12 or newer: one in the path, else pyenv's; None without any."""
    names = [f"python3.{minor}" for minor in range(12, 16)]
    found = [Path(path) for path in map(shutil.which, names) if path]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += [path for name in names for path in sorted(root.glob(f"versions/*/bin/{name}"))]
    return next((path for path in found if _makes_environments(path)), None)


def _makes_environments(python: Path) -> bool:
    # pyenv's own `python3.12` in the path is a script that fails unless that version is chosen.
    command = [str(python), "-c", "import ensurepip, venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def environment_of(
    *requirements: str, with_own: bool = True, alone: Sequence[str] = (), python: Path | None = None
) -> Path:
    """Return the Python of an environment with these requirements and the SDK's own; it is made once a machine.

    What cannot be installed beside the SDK has an environment without the latter's. `alone` are installed without what
    they require. `python` is the interpreter in place of this one.
    """
    required = importlib.metadata.requires("sandmesh") or () if with_own else ()
    own = [requirement for requirement in required if "extra ==" not in requirement]
    wanted = sorted([*requirements, *own])
    inputs = [str(python or sys.version), *wanted, *(f"alone {one}" for one in alone)]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    return _once(name, lambda env: _make(env, str(python or sys.executable), wanted, alone)) / "bin" / "python"


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """Return an environment of the machine's cache, which `make` makes where it is not complete."""
    folder = default_state_directory() / "cache" / "test-environments" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            make(folder / "env")
            (folder / "ready").touch()
    return folder / "env"


def with_sdk(tmp_path: Path, **more: str) -> Mapping[str, str]:
    """Return an environment's variables in which this clone's SDK and its entry points are found."""
    metadata = Path(str(importlib.metadata.distribution("sandmesh").locate_file("")))
    for one in metadata.glob("sandmesh-*.dist-info"):
        if not (tmp_path / one.name).is_symlink():
            (tmp_path / one.name).symlink_to(one)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'sdk'}", **more}


def _uv() -> str | None:
    """Return uv's program, installed once a machine; None where it cannot be installed."""

    def make(env: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(env)], check=True)
        pip = [str(env / "bin" / "python"), "-m", "pip", "install", "--quiet", UV]
        subprocess.run(pip, check=True, capture_output=True, timeout=SECONDS)

    try:
        return str(_once(UV, make) / "bin" / "uv")
    except subprocess.SubprocessError:
        return None


def _commands(env: Path, python: str, uv: str | None) -> tuple[list[str], list[str]]:
    """Return the commands that make an empty environment and install into it."""
    made = str(env / "bin" / "python")
    if uv is None:
        return [python, "-m", "venv", str(env)], [made, "-m", "pip", "install", "--quiet"]
    # --seed: with pip, as venv makes it.
    empty = [uv, "venv", "--quiet", "--seed", "--python", python, str(env)]
    return empty, [uv, "pip", "install", "--quiet", "--python", made]


def _make(env: Path, python: str, requirements: list[str], alone: Sequence[str]) -> None:
    said = ""
    for attempt in range(ATTEMPTS):
        shutil.rmtree(env, ignore_errors=True)
        # uv takes a ninth of pip's time for 108 packages, but does not read its settings, which may name another index.
        empty, install = _commands(env, python, None if attempt else _uv())
        commands = [empty, [*install, *requirements], *([[*install, "--no-deps", *alone]] if alone else [])]
        ended = [
            subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
            for command in commands
        ]
        if not any(done.returncode for done in ended):
            return
        said = "".join(done.stderr for done in ended)
    raise AssertionError(said)
