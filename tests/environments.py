"""Environments with packages that this repository's own environment does not have, kept outside of the clone."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandmeshd.runtime.paths import default_state_directory

ROOT = Path(__file__).resolve().parents[1]
ATTEMPTS, SECONDS = 3, 400


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
    own = [one for one in required if "extra ==" not in one]
    wanted = sorted([*requirements, *own])
    inputs = [str(python or sys.version), *wanted, *(f"alone {one}" for one in alone)]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    folder = default_state_directory() / "cache" / "test-environments" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder / "env", str(python or sys.executable), wanted, alone)
            (folder / "ready").touch()
    return folder / "env" / "bin" / "python"


def with_sdk(tmp_path: Path, **more: str) -> Mapping[str, str]:
    """Return an environment's variables in which this clone's SDK and its entry points are found."""
    metadata = Path(str(importlib.metadata.distribution("sandmesh").locate_file("")))
    for one in metadata.glob("sandmesh-*.dist-info"):
        (tmp_path / one.name).symlink_to(one)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'sdk'}", **more}


def _uv(env: Path, pip: list[str]) -> list[str]:
    """Return the command that installs by uv, or pip's where uv cannot be installed."""
    done = subprocess.run([*pip, "uv==0.13.9"], capture_output=True, check=False, timeout=SECONDS)
    uv = env / "bin" / "uv"
    return pip if done.returncode else [str(uv), "pip", "install", "--quiet", "--python", str(env / "bin" / "python")]


def _make(env: Path, python: str, requirements: list[str], alone: Sequence[str]) -> None:
    said = ""
    for attempt in range(ATTEMPTS):
        shutil.rmtree(env, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(env)], check=True)
        own = [str(env / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        # uv takes a ninth of pip's time for 108 packages, but does not read its settings, which may name another index.
        pip = own if attempt else _uv(env, own)
        commands = [[*pip, *requirements], *([[*pip, "--no-deps", *alone]] if alone else [])]
        ended = [subprocess.run(one, capture_output=True, text=True, check=False, timeout=SECONDS) for one in commands]
        if not any(done.returncode for done in ended):
            return
        said = "".join(done.stderr for done in ended)
    raise AssertionError(said)
