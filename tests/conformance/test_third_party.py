"""A driver from another package, in an environment of its own, that no file of sandmesh names."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmeshd.drivers.conformance import CORE
from sandmeshd.runtime.user_namespaces.removal import remove_tree

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "driver"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def python() -> Iterator[Path]:
    """Return the Python of an environment that has what this one has, and the example's driver."""
    made = Path(tempfile.mkdtemp(prefix="sm-"))
    made.chmod(0o755)
    environment = made / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    own = next(environment.glob("lib/python3*/site-packages"))
    shared = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (own / "shared.pth").write_text(shared)
    source = shutil.copytree(EXAMPLE, made / "source")
    install = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--disable-pip-version-check", str(source)], check=True)
    yield environment / "bin" / "python"
    remove_tree(made)


def _run(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}
    environment = {**clean, "SANDMESH_DRIVER": "tiny", "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([python, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_passes_the_core_of_the_suite(python: Path) -> None:
    done = _run(python, "-m", "tests.conformance.third_party")
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    assert list(found) == [requirement.__name__ for requirement in CORE]
    assert {name: problem for name, problem in found.items() if problem} == {}


def test_its_settings_are_shown_and_checked_by_name(python: Path) -> None:
    shown = _run(python, "-m", "sandmeshd.cli.user", "config", "show", SANDMESH_TINY_START_SECONDS="7")
    assert shown.returncode == 0, shown.stderr
    assert ["tiny_start_seconds", "7.0", "SANDMESH_TINY_START_SECONDS"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    refused = _run(python, "-m", "sandmeshd.cli.user", "config", "show", SANDMESH_TINY_START_SECONDS="0")
    assert refused.returncode != 0
    assert "settings of the driver tiny do not fit: SANDMESH_TINY_START_SECONDS" in refused.stderr
