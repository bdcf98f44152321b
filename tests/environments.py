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


def environment_of(*requirements: str, with_own: bool = True, alone: Sequence[str] = ()) -> Path:
    """Return the Python of an environment with these requirements and the SDK's own; it is made once a machine.

    What cannot be installed beside the SDK has an environment without the latter's. `alone` are installed without what
    they require.
    """
    required = importlib.metadata.requires("sandmesh") or () if with_own else ()
    own = [one for one in required if "extra ==" not in one]
    wanted = sorted([*requirements, *own])
    inputs = [sys.version, *wanted, *(f"alone {one}" for one in alone)]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    folder = default_state_directory() / "cache" / "test-environments" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder / "env", wanted, alone)
            (folder / "ready").touch()
    return folder / "env" / "bin" / "python"


def with_sdk(tmp_path: Path, **more: str) -> Mapping[str, str]:
    """Return an environment's variables in which this clone's SDK and its entry points are found."""
    metadata = Path(str(importlib.metadata.distribution("sandmesh").locate_file("")))
    for one in metadata.glob("sandmesh-*.dist-info"):
        (tmp_path / one.name).symlink_to(one)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'sdk'}", **more}


def _make(env: Path, requirements: list[str], alone: Sequence[str]) -> None:
    said = ""
    for _ in range(ATTEMPTS):
        shutil.rmtree(env, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
        pip = [str(env / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        commands = [[*pip, *requirements], *([[*pip, "--no-deps", *alone]] if alone else [])]
        ended = [subprocess.run(one, capture_output=True, text=True, check=False, timeout=SECONDS) for one in commands]
        if not any(done.returncode for done in ended):
            return
        said = "".join(done.stderr for done in ended)
    raise AssertionError(said)
