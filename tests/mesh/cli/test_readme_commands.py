"""The README's first commands, run as they are printed in a copy of the clone."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from scripts.release.artefacts import ROOT
from scripts.release.programs import first_block

from tests.extras import linked_packages

# What a clone has of these is what a wheel is made from.
SOURCES = ("sdk", "services", "images", "examples", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture
def clone() -> Generator[Path]:
    """Yield a copy of what is installed from, whose interpreter sandboxes' own uid can reach."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        Path(folder).chmod(0o755)
        command = ["cp", "-r", *(str(ROOT / name) for name in SOURCES), folder]
        subprocess.run(command, check=True)
        yield Path(folder)


def test_the_first_commands_of_the_readme_end_with_a_result(clone: Path) -> None:
    # pip finds what the distribution requires here, and so installs that alone; `make release` installs all of it.
    with linked_packages("local") as site:
        done = subprocess.run(
            ["/bin/bash", "-euc", first_block((ROOT / "README.md").read_text())],
            cwd=clone,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["2432902008176640000", "HELLO", " 3 True"]
    assert "Successfully installed sandmesh" in done.stdout
