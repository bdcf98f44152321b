"""What installing the SDK alone takes on a disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.environments import ROOT, environment_of

MOST_BYTES = 60_000_000
OF_THE_ENVIRONMENT = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.mark.timeout(600)
def test_the_sdk_alone_takes_at_most_60_megabytes() -> None:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment_of().parents[1] / "lib" / version / "site-packages"
    needed = {path.name: _size(path) for path in packages.iterdir() if not path.name.startswith(OF_THE_ENVIRONMENT)}
    # The wheel has the services too, and pip compiles both: bytecode takes one and a half times what sources do.
    sources = [*(ROOT / "sdk").rglob("*.py*"), *(ROOT / "services").rglob("*.py")]
    own = sum(path.stat().st_size for path in sources if path.suffix in (".py", ".pyi"))
    assert needed["grpc"] > 1_000_000
    assert sum(needed.values()) + own * 2.5 <= MOST_BYTES, needed
