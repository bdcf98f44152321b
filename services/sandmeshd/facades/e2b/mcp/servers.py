"""The servers that a client names for a sandbox: some of the mesh's own tools, and programs in repositories."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any, Final, cast

from sandmesh import SandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.facades.e2b.envd.paths import HOME, WORKSPACE
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.requests import text, texts

OWN: Final = {"filesystem": "filesystem", "git": "git"}
"""Groups of the mesh's tools that stand for servers of these names."""

FOLDER: Final = ".mcp-gateway"
"""In the home: the token of the gateway, and what was cloned."""

VARIABLE: Final = "MCP_SERVERS"
_PREFIX: Final = "github/"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_MOST: Final = 32
_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Repository:
    """A server that is a program in a repository of GitHub's."""

    name: str
    """owner/repository."""

    run: str
    install: str
    environment: dict[str, str]

    @property
    def server(self) -> str:
        """What its server is called."""
        return self.name.replace("/", "-").replace(".", "-")[:64]

    @property
    def folder(self) -> str:
        """Where it is cloned to, below the home."""
        return f"{FOLDER}/{self.name}"


@dataclass(frozen=True)
class NamedServers:
    """The servers of a sandbox; none where its maker named none."""

    groups: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()

    @property
    def names(self) -> list[str]:
        """The groups of tools that the gateway has."""
        return [*self.groups, *(repository.server for repository in self.repositories)]


def read_servers(found: dict[str, Any]) -> NamedServers:
    """Read the servers of a request for a sandbox.

    Raises:
        ApiError: One is not offered here, by its name, or does not fit.
    """
    value: object = found.get("mcp") or {}
    if not isinstance(value, dict):
        raise ApiError(400, "mcp is an object of servers by name")
    named = cast("dict[str, object]", value)
    if len(named) > _MOST:
        raise ApiError(400, f"mcp has at most {_MOST} servers")
    groups = [OWN[name] for name in named if name in OWN]
    repositories = [_repository(name, one) for name, one in named.items() if name.startswith(_PREFIX)]
    for name in named:
        if name not in OWN and not name.startswith(_PREFIX):
            known = ", ".join(OWN)
            fix = f"there are {known}, and programs of repositories as '{_PREFIX}owner/repository'"
            raise ApiError(400, f"mcp.{name}: this mesh has no server of E2B's catalogue of that name; {fix}")
    return NamedServers(tuple(groups), tuple(repositories))


async def start_servers(box: SandboxAsync, servers: NamedServers) -> None:
    """Clone, install and start what is in repositories.

    Raises:
        ApiError: A command failed, or a server did not start.
    """
    for one in servers.repositories:
        await _prepare(box, one)
    configured = {repository.server: _configuration(repository) for repository in servers.repositories}
    if not configured:
        return
    try:
        started = await box.add_mcp_servers({"mcpServers": configured})
    except SandmeshError as error:
        raise ApiError(400, f"mcp: {error.message}") from None
    for server in started:
        if server.state == "FAILED":
            raise ApiError(400, f"mcp: the server {server.name} did not start: {server.error} {server.log}".strip())


async def _prepare(box: SandboxAsync, one: Repository) -> None:
    place = f"{HOME}/{one.folder}"
    address = f"https://github.com/{one.name}"
    command = f"[ -d {place} ] || git clone --quiet --depth 1 {shlex.quote(address)} {place}"
    if one.install:
        command += f" && cd {place} && {one.install}"
    result = await box.call_tool("run_shell_command", {"command": command, "timeout": _SECONDS})
    if result.is_error or result.exit_code:
        raise ApiError(400, f"mcp.{_PREFIX}{one.name}: the server could not be installed: {result.text[-1000:]}")


def _configuration(one: Repository) -> dict[str, Any]:
    command = {"command": "/bin/bash", "args": ["-c", f"exec {one.run}"]}
    return {**command, "cwd": f"{WORKSPACE}/{one.folder}", "env": one.environment}


def _repository(name: str, value: object) -> Repository:
    bare = name.removeprefix(_PREFIX)
    if _REPOSITORY.fullmatch(bare) is None or not isinstance(value, dict) or ".." in bare:
        raise ApiError(400, f"mcp.{name}: write '{_PREFIX}owner/repository' with an object of run_cmd and install_cmd")
    found = cast("dict[str, Any]", value)
    run = text(found, "run_cmd") or text(found, "runCmd")
    if not run:
        raise ApiError(400, f"mcp.{name}: run_cmd says how the server is started")
    return Repository(bare, run, text(found, "install_cmd") or text(found, "installCmd"), texts(found, "envs"))
