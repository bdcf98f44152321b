"""Installs a template's Python as its file of requirements says: `install.py ENVIRONMENT.toml TARGET`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PIP = ("--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--no-compile")


def main() -> None:
    """Make the environment, compile it, and fill caches in what becomes each sandbox's home."""
    described = tomllib.loads(Path(sys.argv[1]).read_text())
    target = Path(sys.argv[2])
    wanted = Path("/tmp/requirements.txt")  # noqa: S108 - of the build
    wanted.write_text("\n".join(described["requirements"]) + "\n")
    python = str(target / "bin" / "python")
    pip = [python, "-m", "pip", "install", *PIP, "--root-user-action", "ignore", "--only-binary", ":all:"]
    subprocess.run([*pip, "-r", str(wanted)], check=True)
    wanted.unlink()
    # It is read-only in sandboxes; the packages' own tests, a third of it, nobody imports.
    compiled = [python, "-m", "compileall", "-q", "-j", "0", "-x", r"[/\\]tests[/\\]", str(target / "lib")]
    subprocess.run(compiled, check=False)
    home = target / "home"
    home.mkdir()
    variables = {**os.environ, **described.get("variables", {}), "HOME": str(home)}
    subprocess.run([python, "-c", described.get("warm_up", "")], env=variables, check=True)
    shutil.rmtree("/root/.cache", ignore_errors=True)
    subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)  # noqa: S607 - of the image


main()
