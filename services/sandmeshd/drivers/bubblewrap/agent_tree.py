"""The agent's own code as sandboxes see it: a copy of what it needs of the mesh's environment, and nothing else."""

from __future__ import annotations

import asyncio
import compileall
import hashlib
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap.arguments import AGENT
from sandmeshd.drivers.bubblewrap.builds import building, is_complete
from sandmeshd.drivers.bubblewrap.interpreter import VERSION
from sandmeshd.drivers.bubblewrap.reach import open_to_all

PARTS = {
    "sandmesh": (
        "__init__.py",
        "_tar.py",
        "errors.py",
        "tools",
        "api/__init__.py",
        "api/agent",
        "api/call",
        "api/errors",
        "api/options",
    ),
    "sandmeshd": ("__init__.py", "agent"),
    "google.protobuf": ("",),
    "google._upb": ("",),
    "pydantic": ("",),
    "pydantic_core": ("",),
    "annotated_types": ("",),
    "typing_inspection": ("",),
}
"""Files and folders by the package that they are in; an empty name is all of it."""

MODULES = ("typing_extensions",)
MAIN = "from sandmeshd.agent.main import main\n\nmain()\n"


class AgentTree:
    """The tree of the code that is installed now; another release has another."""

    def __init__(self, cache: Path) -> None:
        self._sources = list(_sources())
        self.path = cache / "agent" / _key(self._sources)

    @property
    def site(self) -> Path:
        """The directory that sandboxes see."""
        return self.path / "site"

    @property
    def prepared(self) -> bool:
        """Whether it is built."""
        return is_complete(self.path)

    async def build(self) -> None:
        """Build it unless it is there."""
        async with building(self.path) as fresh:
            if fresh is not None:
                await asyncio.to_thread(self._fill, fresh)

    def _fill(self, fresh: Path) -> None:
        site = fresh / "site"
        for source, name in self._sources:
            target = site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        (site / "__main__.py").write_text(MAIN)
        compileall.compile_dir(site, quiet=2, stripdir=str(site), prependdir=AGENT)
        open_to_all(fresh)


def _key(sources: list[tuple[Path, str]]) -> str:
    digest = hashlib.sha256(f"{VERSION} {MAIN}".encode())
    for path, name in sources:
        facts = path.stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]


def _sources() -> Iterator[tuple[Path, str]]:
    for package, parts in PARTS.items():
        root = _folder(package)
        for part in parts:
            yield from _files(root / part if part else root, package.replace(".", "/") + (f"/{part}" if part else ""))
    for module in MODULES:
        yield _found(module), f"{module}.py"


def _files(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, name
        return
    for inner in sorted(path.iterdir()):
        if _is_needed(inner):
            yield from _files(inner, f"{name}/{inner.name}")


def _is_needed(path: Path) -> bool:
    if path.is_dir():
        return path.name != "__pycache__"
    return path.suffix in {".py", ".so"} and not path.name.endswith("_grpc.py")


def _folder(package: str) -> Path:
    # A namespace package such as google._upb has no file of its own.
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package)
    return Path(next(iter(spec.submodule_search_locations)))


def _found(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise _missing(module)
    return Path(spec.origin)


def _missing(name: str) -> RuntimeUnavailable:
    fix = "pip install 'sandmesh[local]'"
    return RuntimeUnavailable(f"the agent needs {name}, which is not installed: {fix}", {"fix": fix})
