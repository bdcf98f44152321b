"""Environments that have this distribution with some of its extras, and what these require."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

# pytest itself needs it.
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@contextmanager
def environment_with(*extras: str) -> Generator[Path]:
    """Yield the Python of an environment with these extras of sandmesh, which is removed afterwards."""
    made = Path(tempfile.mkdtemp(prefix="sm-"))
    made.chmod(0o755)
    try:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made / "env")], check=True)
        own = next(made.glob("env/lib/python3*/site-packages"))
        for one in _required("sandmesh", frozenset(extras)):
            _link(one, own)
        yield made / "env" / "bin" / "python"
    finally:
        shutil.rmtree(made)


@contextmanager
def linked_packages(*extras: str) -> Generator[Path]:
    """Yield a directory with links to what these extras of sandmesh require, without sandmesh."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        Path(folder).chmod(0o755)
        for one in _required("sandmesh", frozenset(extras)):
            if one.name != "sandmesh":
                _link(one, Path(folder))
        yield Path(folder)


def _required(name: str, extras: frozenset[str]) -> list[Distribution]:
    """Return a distribution and all that it requires with these extras, as they are installed here."""
    found: dict[tuple[str, frozenset[str]], Distribution] = {}
    wanted = [(name, extras)]
    while wanted:
        key = wanted.pop()
        if key in found:
            continue
        found[key] = distribution(key[0])
        for requirement in map(Requirement, found[key].requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*key[1], "")):
                wanted.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return list(found.values())


def _link(one: Distribution, site: Path) -> None:
    """Link what a distribution has at the top of its site directory into another one."""
    tops = {path.parts[0] for path in one.files or ()} - {"..", "__pycache__"}
    for top in tops:
        source, target = Path(str(one.locate_file(top))), site / top
        if source.exists() and not target.exists():
            target.symlink_to(source)
