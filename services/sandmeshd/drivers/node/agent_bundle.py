"""The agent's code in a separate folder: copies of what it imports from the mesh's environment, and nothing else."""

from __future__ import annotations

import asyncio
import compileall
import hashlib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node import agent_sources
from sandmeshd.drivers.node.agent_config import AGENT, MCP
from sandmeshd.drivers.node.agent_sources import PARTS, copy_files, list_files, list_sources
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.readability import open_to_all

LIBRARIES = (
    "google.protobuf",
    "google._upb",
    "uvloop",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_inspection",
)
"""Packages that the agent imports beside its own code."""

MODULES = ("typing_extensions",)
MCP_LIBRARIES = (
    "mcp",
    "mcp_types",
    "anyio",
    "click",
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
)
"""Packages that the MCP client process imports beside the agent's own code; for another it has placeholders."""

MCP_DISTRIBUTIONS = ("httpcore2", "httpx2", "mcp", "mcp-types")
"""Distributions that look up their own version when they are imported."""


class AgentTree:
    """The code that runs inside sandboxes: the agent's, and apart from it that of the MCP client process."""

    def __init__(self, cache: Path) -> None:
        packages = {package: _folder(package) for package in PARTS}
        agent = [*list_sources(packages), *_libraries(LIBRARIES, MODULES)]
        mcp = [*_libraries(MCP_LIBRARIES, ()), *_metadata()]
        self._agent = _Tree(cache / "agent", AGENT, agent, agent_sources.MAIN)
        self._mcp = _Tree(cache / "mcp", MCP, mcp, "")

    @property
    def site(self) -> Path:
        """The directory of the agent's code."""
        return self._agent.path / "site"

    @property
    def mcp(self) -> Path:
        """The directory of the code of the MCP client process."""
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
        """Build what is missing."""
        await self._agent.build()
        await self._mcp.build()


class _Tree:
    """A folder of copied code, at a path that its sources determine; sandboxes see it at `place`."""

    def __init__(self, cache: Path, place: str, sources: list[tuple[Path, str]], main: str) -> None:
        self._place = place
        self._sources = sources
        self._main = main
        self.path = cache / _key(sources, main)

    async def build(self) -> None:
        """Build it unless it exists."""
        async with building(self.path) as fresh:
            if fresh is not None:
                await asyncio.to_thread(self._fill, fresh)

    def _fill(self, fresh: Path) -> None:
        site = fresh / "site"
        copy_files(self._sources, site)
        if self._main:
            (site / "__main__.py").write_text(self._main)
        compileall.compile_dir(site, quiet=2, stripdir=str(site), prependdir=self._place)
        open_to_all(fresh)


def _key(sources: list[tuple[Path, str]], main: str) -> str:
    digest = hashlib.sha256(f"{VERSION} {main}".encode())
    for path, name in sources:
        facts = path.stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:20]


def _libraries(packages: Iterable[str], modules: Iterable[str]) -> Iterator[tuple[Path, str]]:
    for package in packages:
        yield from list_files(_folder(package), package.replace(".", "/"))
    for module in modules:
        path = _file(module)
        yield path, path.name


def _metadata() -> Iterator[tuple[Path, str]]:
    for name in MCP_DISTRIBUTIONS:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:
            raise _missing(name) from None
        yield from ((Path(str(file.locate())), str(file)) for file in files if file.match("*.dist-info/METADATA"))


def _folder(package: str) -> Path:
    # A namespace package such as google._upb has no file.
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package)
    return Path(next(iter(spec.submodule_search_locations)))


def _file(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise _missing(module)
    return Path(spec.origin)


def _missing(name: str) -> RuntimeUnavailable:
    fix = "pip install 'sandmesh[local]'"
    return RuntimeUnavailable(f"the agent needs {name}, which is not installed: {fix}", {"fix": fix})
