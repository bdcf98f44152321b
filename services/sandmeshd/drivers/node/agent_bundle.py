"""The agent's own code as sandboxes see it: a copy of what it needs of the mesh's environment, and nothing else."""

from __future__ import annotations

import asyncio
import compileall
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node.agent_config import AGENT, MCP
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.readability import open_to_all

PARTS = {
    "sandmesh": (
        "__init__.py",
        "errors.py",
        "_tools",
        "shared/__init__.py",
        "shared/atomic_file.py",
        "shared/bulk_frames.py",
        "shared/frames.py",
        "shared/tar.py",
        "api/__init__.py",
        "api/agent",
        "api/call",
        "api/errors",
        "api/options",
    ),
    "sandmeshd": ("__init__.py", "agent"),
    "google.protobuf": ("",),
    "google._upb": ("",),
    "uvloop": ("",),
    "pydantic": ("",),
    "pydantic_core": ("",),
    "annotated_types": ("",),
    "typing_inspection": ("",),
}
"""Files and folders by the package that they are in; an empty name is all of it."""

MODULES = ("typing_extensions",)
MCP_PARTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    (
        "mcp",
        "mcp_types",
        "anyio",
        "click",
        "cryptography",
        "h11",
        "httpcore2",
        "httpx2",
        "idna",
        "multipart",
        "opentelemetry",
        "python_multipart",
        "sse_starlette",
        "starlette",
        "truststore",
        "uvicorn",
    ),
    ("",),
)
"""What the program that speaks MCP in a sandbox imports beside the agent's own code."""

MCP_MODULES = ("_cffi_backend",)
MCP_ASKED = ("httpcore2", "httpx2", "mcp", "mcp-types")
"""Distributions that look for their own version when they are imported."""
MAIN = "from sandmeshd.agent.main import main\n\nmain()\n"


class AgentTree:
    """The code that is installed now, as sandboxes see it: the agent's, and apart from it what speaks MCP."""

    def __init__(self, cache: Path) -> None:
        self._agent = _Tree(cache / "agent", AGENT, list(_sources(PARTS, MODULES)), MAIN)
        self._mcp = _Tree(cache / "mcp", MCP, [*_sources(MCP_PARTS, MCP_MODULES), *_metadata()], "")

    @property
    def site(self) -> Path:
        """The directory of the agent's code."""
        return self._agent.path / "site"

    @property
    def mcp(self) -> Path:
        """The directory of what speaks MCP."""
        return self._mcp.path / "site"

    @property
    def path(self) -> Path:
        """Where the agent's code is built."""
        return self._agent.path

    @property
    def prepared(self) -> bool:
        """Whether both are built."""
        return is_complete(self._agent.path) and is_complete(self._mcp.path)

    async def build(self) -> None:
        """Build what is not there."""
        await self._agent.build()
        await self._mcp.build()


class _Tree:
    """A tree of copied code; other sources have another."""

    def __init__(self, cache: Path, shown: str, sources: list[tuple[Path, str]], main: str) -> None:
        self._shown = shown
        self._sources = sources
        self._main = main
        self.path = cache / _key(sources, main)

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
        if self._main:
            (site / "__main__.py").write_text(self._main)
        compileall.compile_dir(site, quiet=2, stripdir=str(site), prependdir=self._shown)
        open_to_all(fresh)


def _key(sources: list[tuple[Path, str]], main: str) -> str:
    digest = hashlib.sha256(f"{VERSION} {main}".encode())
    for path, name in sources:
        facts = path.stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]


def _sources(packages: Mapping[str, tuple[str, ...]], modules: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    for package, parts in packages.items():
        root = _folder(package)
        for part in parts:
            yield from _files(root / part if part else root, package.replace(".", "/") + (f"/{part}" if part else ""))
    for module in modules:
        found = _found(module)
        yield found, found.name


def _metadata() -> Iterator[tuple[Path, str]]:
    for name in MCP_ASKED:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            raise _missing(name) from None
        yield from ((Path(str(file.locate())), str(file)) for file in files if file.match("*.dist-info/METADATA"))


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
