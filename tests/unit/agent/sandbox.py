"""A real agent under bwrap, started with the driver's own command line and the configuration of the test."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandmeshd.drivers.bubblewrap.app import open_view
from sandmeshd.drivers.bubblewrap.arguments import BwrapDescriptors, Mounts, SharedView, sandbox_arguments
from sandmeshd.drivers.bubblewrap.environment import EnvironmentBuilder, home_files
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import HOME
from sandmeshd.drivers.node.seccomp import SeccompFilters, build_filters
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.templates import load_templates

from .client import SANDBOX, TOKEN, Client, connect


@dataclass(frozen=True)
class Ground:
    """What sandboxes are made from, built once for all tests of a machine."""

    settings: BubblewrapSettings
    view: SharedView
    environment: Path
    agent: Path
    mcp: Path
    filters: SeccompFilters
    variables: dict[str, str]


async def prepare_ground() -> Ground:
    """Build the base template's environment and the agent's tree, unless they are there."""
    paths = MeshPaths(f"agent-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    paths.make()
    settings = BubblewrapSettings(paths=paths)
    view = await open_view(settings)
    template = load_templates()["base"]
    builder, agent = EnvironmentBuilder(settings, view), AgentTree(paths.cache)
    await agent.build()
    async for _ in builder.build(template.python):
        pass
    shutil.rmtree(paths.state)
    shutil.rmtree(paths.runtime)
    path = "/opt/env/bin:/usr/local/bin:/usr/bin:/bin"
    variables = {"PATH": path, "HOME": HOME, **template.python.variables, **template.variables}
    return Ground(settings, view, builder.path(template.python), agent.site, agent.mcp, build_filters(), variables)


@dataclass
class Sandbox:
    """A running agent."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def socket(self) -> str:
        return str(self.folder / "run" / "agent.sock")

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def agent_pid(self) -> int:
        """The agent's pid on the host."""
        return children(self.process.pid)[0]

    def connect(self) -> Any:
        """Open a link."""
        return connect(self.socket)


def config(ground: Ground, **changed: Any) -> bytes:
    """Return the line that the driver writes."""
    config = {
        "sandbox_id": SANDBOX,
        "agent_token": TOKEN,
        "listen": "unix:///run/agent/agent.sock",
        "python": "/opt/env/bin/python",
        "tool_groups": ["generic", "git", "filesystem"],
        "environment": ground.variables,
        "workspace": "/workspace",
        "hidden_directory": "/run/agent",
        "seccomp_filter": b64encode(ground.filters.user).decode(),
        "ends_with_driver": True,
    }
    return json.dumps({**config, **changed}).encode() + b"\n"


@contextmanager
def _folder(ground: Ground) -> Generator[Path]:
    """Return a folder that a sandbox's uid can reach, which pytest's own cannot be."""
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for inner in ("workspace", "run"):
            (folder / inner).mkdir()
            os.chown(folder / inner, ground.settings.host_uid, ground.settings.host_gid)
        yield folder


def _launch(ground: Ground, folder: Path, fds: dict[str, int]) -> subprocess.Popen[bytes]:
    memory = os.memfd_create("filter")
    os.write(memory, ground.filters.agent)
    os.lseek(memory, 0, os.SEEK_SET)
    passed = BwrapDescriptors(
        lock=fds["lock"], status=fds["lock"], seccomp=memory, config=fds["config"], ready=fds["ready"]
    )
    seeds = home_files(ground.environment)
    mounts = Mounts(ground.environment, seeds, ground.agent, ground.mcp, folder / "workspace", folder / "run")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            sandbox_arguments(ground.view, mounts, passed, True),
            pass_fds=passed.all(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={},
            cwd="/",
        )
    os.close(memory)
    return process


@contextmanager
def start(ground: Ground, **changed: Any) -> Generator[tuple[Sandbox, str]]:
    """Start an agent, give what it said of itself, and end it."""
    with started_with(ground, config(ground, **changed)) as started:
        yield started


@contextmanager
def started_with(ground: Ground, first_line: bytes) -> Generator[tuple[Sandbox, str]]:
    """Start an agent with this line as its configuration."""
    with _folder(ground) as folder:
        config_read, config_write = os.pipe()
        ready_read, ready_write = os.pipe()
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
        process = _launch(ground, folder, {"lock": lock, "config": config_read, "ready": ready_write})
        for fd in (config_read, ready_write, lock):
            os.close(fd)
        try:
            os.write(config_write, first_line)
            with os.fdopen(ready_read) as ready:
                line = ready.readline()
            yield Sandbox(process, folder), line
        finally:
            os.close(config_write)
            process.wait(timeout=10)
            # Only shown when the test fails.
            sys.stderr.write((folder / "log").read_text())


@contextmanager
def running(ground: Ground, **changed: Any) -> Generator[Sandbox]:
    """Start an agent that must come up."""
    with start(ground, **changed) as (sandbox, line):
        assert json.loads(line or "{}") == {"ready": True}, (sandbox.folder / "log").read_text()
        yield sandbox


@asynccontextmanager
async def talking(ground: Ground, **changed: Any) -> AsyncGenerator[tuple[Sandbox, Client]]:
    """Start an agent and open a link to it."""
    with running(ground, **changed) as sandbox:
        async with asyncio.timeout(60), sandbox.connect() as client:
            yield sandbox, client


def resident(pid: int) -> int:
    """Return a process's memory in KiB."""
    return _status(pid, "VmRSS")


def peak(pid: int) -> int:
    """Return the most memory that a process had, in KiB."""
    return _status(pid, "VmHWM")


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
