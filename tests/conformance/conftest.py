"""The bubblewrap driver as the conformance suite wants it, directly and over gRPC."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import TemplateBuildFailed
from sandmeshd.auth.channels import open_channel
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.remote import RemoteDriver
from sandmeshd.drivers.api.servicer import DriverServicer
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.settings import WayName
from sandmeshd.drivers.conformance import Boundary, Subject
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.rpc.registrations import driver_service
from sandmeshd.runtime.rpc.server import open_server
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.engine import kept_data_root, slow_parts
from tests.remote_engine import RemoteEngine, remote_engine

collect_ignore_glob = slow_parts()

WRITABLE = frozenset({"/proc", "/dev/pts", "/dev/shm", "/tmp", "/home/sandbox", "/workspace"})
ATTEMPTS = 3
Open = Callable[[], AbstractAsyncContextManager[Driver]]


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def below(root: int) -> list[int]:
    """Give a process and all below it."""
    parents = _parents()
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _descriptors() -> list[str]:
    targets: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(path.readlink()))
        except FileNotFoundError:
            continue
    return targets


def leftovers(paths: MeshPaths) -> set[str]:
    """Give everything on this machine that belongs to a mesh of this process."""
    processes = {f"process {pid}" for pid in below(os.getpid())}
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounts = {place for place in mounted if place.startswith((str(paths.state_root), str(paths.runtime_root)))}
    # The engine of another run mounts what its containers have, at any time.
    mounts = {place for place in mounts if not place.startswith(f"{kept_data_root()}/")}
    roots = (paths.sandboxes, paths.agents, paths.node_state / "snapshots")
    folders = {path for root in roots for path in _two_deep(root)}
    pidfds = {f"pidfd {number}" for number in range(_descriptors().count("anon_inode:[pidfd]"))}
    files = {target for target in _descriptors() if "/memfd:" in target or str(paths.sandboxes) in target}
    return processes | mounts | folders | pidfds | files


def _two_deep(root: Path) -> Iterator[str]:
    for at, inner, names in os.walk(root):
        yield from (os.path.join(at, name) for name in (*inner, *names))  # noqa: PTH118 - names may be no text
        if Path(at) != root:
            inner.clear()


def processes(paths: MeshPaths, sandbox_id: str) -> list[int]:
    """Give a sandbox's processes, PID 1 first."""
    init = MeshFolders(paths).folder(sandbox_id).status_value("child-pid")
    assert init is not None
    return below(init)


@contextmanager
def own_paths() -> Generator[MeshPaths]:
    """Give the directories of a mesh of a new id, beside the environments that this user's meshes share."""
    made = MeshPaths(f"suite-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    made.make()
    try:
        yield made
    finally:
        for folder in (made.state, made.runtime):
            remove_tree(folder)


@pytest.fixture
def paths() -> Iterator[MeshPaths]:
    """Give the directories of a mesh of the test's own."""
    with own_paths() as made:
        yield made


@pytest.fixture
def shared() -> Iterator[str]:
    """Give a directory that workspaces may be in; every user can pass through it."""
    made = Path(tempfile.mkdtemp(prefix="sm-"))
    made.chmod(0o755)
    yield str(made)
    remove_tree(made)


@pytest.fixture(scope="session")
def away(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteEngine]:
    """Give an engine on another machine, with the image of the templates."""
    folder = tmp_path_factory.mktemp("away")
    with remote_engine(folder, engine, [default_state_directory(), default_runtime_directory()]) as started:
        yield started


@pytest.fixture
def prepared() -> None:
    """Build the templates' environment and the agent's tree, where no test did; again where the index falters."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            asyncio.run(_prepare())
        except TemplateBuildFailed:
            if attempt == ATTEMPTS:
                raise
        else:
            return


async def _prepare() -> None:
    paths = MeshPaths(f"suite-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    paths.make()
    try:
        async with open_driver(BubblewrapSettings(paths=paths)) as driver:
            async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="filesystem")):
                pass
    finally:
        for folder in (paths.state, paths.runtime):
            remove_tree(folder)


def _direct(settings: BubblewrapSettings) -> Open:
    return lambda: open_driver(settings)


def _remote(settings: BubblewrapSettings) -> Open:
    @asynccontextmanager
    async def open_remote() -> AsyncGenerator[Driver]:
        address = f"unix://{settings.paths.services}/d"
        async with (
            open_driver(settings) as driver,
            open_server([address], [driver_service(DriverServicer(driver))]),
            open_channel(address) as channel,
        ):
            yield RemoteDriver(channel)

    return open_remote


@pytest.fixture(params=["exec", "fork"])
def way(request: pytest.FixtureRequest) -> WayName:
    """Give each way of starting sandboxes."""
    chosen: WayName = request.param
    return chosen


def _warm(opened: Open, mesh_id: str) -> Open:
    """Open so that what stands by to fork sandboxes is there already: it is no leftover of one."""

    @asynccontextmanager
    async def open_warm() -> AsyncGenerator[Driver]:
        async with opened() as driver:
            spec = sandbox_pb2.SandboxSpec(template="base")
            await driver.create_sandbox(pb.CreateSandboxRequest(sandbox_id="warm-up", mesh_id=mesh_id, spec=spec))
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="warm-up"))
            yield driver

    return open_warm


@pytest.fixture(params=[_direct, _remote], ids=["direct", "grpc"])
async def subject(
    request: pytest.FixtureRequest, paths: MeshPaths, prepared: None, way: WayName, shared: str
) -> AsyncGenerator[Subject]:
    """Give the driver on a mesh of its own, nothing of which is left afterwards."""
    opened = request.param(BubblewrapSettings(paths=paths, way=way, workspace_roots=(shared,)))
    yield Subject(
        open=opened if way == "exec" else _warm(opened, paths.mesh_id),
        mesh_id=paths.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: leftovers(paths),
        boundary=Boundary(
            writable_mounts=WRITABLE,
            processes=lambda sandbox_id: processes(paths, sandbox_id),
            hidden=("/var/lib", str(paths.state_root), str(paths.runtime_root), str(Path(__file__).parent)),
        ),
        shared=shared,
    )
    await sweep_state(paths)
