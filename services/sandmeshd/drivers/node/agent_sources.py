"""The files of this project that run inside a sandbox, and a program that copies them.

`agent_sources.py TARGET ROOT...`, where each ROOT is a folder of packages. The build of an image runs it under the
image's own Python, so it needs nothing but the standard library.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PARTS = {
    "sandmesh": (
        "__init__.py",
        "errors.py",
        "_tools",
        "shared/__init__.py",
        "shared/bulk_frames.py",
        "shared/environment.py",
        "shared/frames.py",
        "shared/version.py",
        "shared/websocket.py",
        "shared/files/__init__.py",
        "shared/files/atomic_directory.py",
        "shared/files/atomic_file.py",
        "shared/files/ignore_patterns.py",
        "shared/files/tar.py",
        "shared/files/tar_headers.py",
        "api/__init__.py",
        "api/agent",
        "api/call",
        "api/errors",
        "api/options",
    ),
    "sandmeshd": ("__init__.py", "agent", "contracts/__init__.py", "contracts/mcp_config.py", "contracts/novnc"),
}
"""Files and folders by the package that they are in."""

MAIN = "from sandmeshd.agent.main import main\n\nmain()\n"
"""The module that starts the agent from the folder that its code is in."""


def list_sources(packages: Mapping[str, Path]) -> Iterator[tuple[Path, str]]:
    """List the files below the folders of `packages`, each with its name in a sandbox."""
    for package, parts in PARTS.items():
        for part in parts:
            yield from list_files(packages[package] / part, f"{package}/{part}")


def list_files(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    """List the code at or below a path, each file with its name below `name`."""
    if path.is_file():
        yield path, name
        return
    for inner in sorted(path.iterdir()):
        if _is_code(inner):
            yield from list_files(inner, f"{name}/{inner.name}")


def _is_code(path: Path) -> bool:
    if path.is_dir():
        return path.name != "__pycache__"
    return path.suffix in {".py", ".so", ".cjs", ".html", ".tgz"} and not path.name.endswith("_grpc.py")


def copy_files(files: Iterable[tuple[Path, str]], target: Path) -> None:
    """Copy files to their names below a folder."""
    for source, name in files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)


def main() -> None:
    """Copy the sources as the command line says."""
    target, *roots = map(Path, sys.argv[1:])
    packages = {package: root / package for root in roots for package in PARTS if (root / package).is_dir()}
    copy_files(list_sources(packages), target)
    (target / "__main__.py").write_text(MAIN)


if __name__ == "__main__":
    main()
