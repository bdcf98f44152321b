"""Sandboxes from images without an agent, on docker's runtime and gVisor's, on a real engine."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import tarfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance import Requirement, Subject
from sandmeshd.drivers.conformance.inside import call, run
from sandmeshd.drivers.conformance.requirements import calls, files, isolation, lifecycle
from sandmeshd.drivers.engine.gvisor.app import GvisorSettings
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.engines import WRITABLE, direct, leftovers, subject_of
from tests.engine import in_full
from tests.image_layouts import file_entry
from tests.image_roots import busybox_root

pytestmark = [pytest.mark.needs("root", "docker", "runsc", "busybox"), pytest.mark.timeout(600)]

APP = (
    *("USER app", "WORKDIR /srv/app", "ENV FLAVOUR=salt LD_PRELOAD=/nowhere.so PATH=/bin", "VOLUME /data"),
    *('ENTRYPOINT ["sh", "-c", "echo $0 $FLAVOUR; pwd; id -u"]', 'CMD ["cmd"]'),
)
IMAGES: dict[str, tuple[str, ...]] = {
    "test/plain:1": (),
    "test/app:1": APP,
    "test/cover:1": ("VOLUME /opt/sandmesh/python/lib",),
    "test/toor:1": ("USER toor",),
}
SEEN = 'grep -E "^(Cap[IE]|NoNew)" /proc/self/status'
OF_IMAGES: tuple[Requirement, ...] = (
    lifecycle.a_created_sandbox_runs_commands,
    files.names_of_files_are_bytes,
    isolation.user_code_has_no_privileges,
    isolation.user_code_cannot_touch_the_agent,
    isolation.the_network_is_loopback_only,
    isolation.no_process_has_host_uid_0,
)
IN_FULL: tuple[Requirement, ...] = (
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_cancelled_create_leaves_nothing,
    lifecycle.a_deleted_sandbox_leaves_nothing,
    calls.a_process_has_a_terminal_of_its_own,
    calls.kernels_of_a_sandbox_are_apart,
    isolation.user_code_cannot_make_dangerous_system_calls,
    isolation.neighbours_do_not_see_one_another,
)


def _docker(url: str, *arguments: str, data: bytes = b"") -> None:
    subprocess.run(["/usr/bin/docker", "--host", url, *arguments], input=data, check=True, capture_output=True)


def _with_preload(layer: bytes) -> bytes:
    """Add to a layer what its C library would load into every program, which is not there: the loader says so."""
    stream = io.BytesIO(layer)
    with tarfile.open(fileobj=stream, mode="a") as archive:
        file, data = file_entry("etc/ld.so.preload", b"/nowhere.so\n")
        archive.addfile(file, io.BytesIO(data))
    return stream.getvalue()


@pytest.fixture(scope="module")
def images(engine: str) -> Iterator[None]:
    """Put images on the engine that are made of busybox, and one without any file."""
    below, _ = busybox_root()
    below = _with_preload(below)
    for name, changes in IMAGES.items():
        options = [part for change in changes for part in ("--change", change)]
        _docker(engine, "import", *options, "-", name, data=below)
    _docker(engine, "import", "-", "test/empty:1", data=bytes(10240))
    yield
    _docker(engine, "rmi", "--force", *IMAGES, "test/empty:1")


@pytest.fixture(params=[DockerSettings, GvisorSettings], ids=["docker", "gvisor"])
def settings(request: pytest.FixtureRequest, paths: MeshPaths, engine: str) -> DockerSettings:
    """Give settings of a mesh of its own."""
    made: DockerSettings = request.param(paths=paths, url=engine)
    return made


@asynccontextmanager
async def _sandbox(driver: Driver, paths: MeshPaths, image: str, **fields: Any) -> AsyncGenerator[pb.RuntimeSandbox]:
    spec = sandbox_pb2.SandboxSpec(template="base", image=image, **fields)
    request = pb.CreateSandboxRequest(sandbox_id="sb_image", mesh_id=paths.mesh_id, spec=spec)
    try:
        yield (await driver.create_sandbox(request)).sandbox
    finally:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_image"))


async def _cell(sandbox: pb.RuntimeSandbox, code: str) -> str:
    return (await call(sandbox, "run_ipython_cell", {"code": code})).stdout


@pytest.mark.usefixtures("images")
async def test_an_image_without_an_agent_is_the_root_as_it_is(
    settings: DockerSettings, engine: str, paths: MeshPaths
) -> None:
    async with direct(settings)() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        assert able.images
        assert able.root
        async with _sandbox(driver, paths, "test/app:1") as sandbox:
            said = (await run(sandbox, "id; pwd; echo $FLAVOUR $HOME $PATH; echo m > /workspace/m")).stdout
            assert said == "uid=1234(app) gid=1235(app) groups=1300(extra)\n/srv/app\nsalt /home/app /bin\n"
            assert (await run(sandbox, "stat -c '%u %g' /workspace/m")).stdout == "1234 1235\n"
            assert "denied" in (await run(sandbox, "ls /run/sandmesh/agent")).stderr
            assert "denied" in (await run(sandbox, "echo x > /etc/x")).stderr
            await run(sandbox, "kill -9 -1")
            # A killed kernel may take a cell before its death is known: that cell fails, and the next one does not.
            who = "import os, sys; print(os.getuid(), os.getgid(), sys.prefix)"
            assert (await _cell(sandbox, who) or await _cell(sandbox, who)) == "1234 1235 /opt/env\n"
            for arguments, first in (([], "cmd"), (["own"], "own")):
                said = (await call(sandbox, "start_process", {"command": arguments, "entrypoint": True})).stdout
                assert said == f"{first} salt\n/srv/app\n1234\n"
            assert sandbox.enforced["root"].startswith("user app inside")
            log = await driver.get_logs(pb.GetLogsRequest(sandbox_id="sb_image"))
            assert b"preload" not in log.data, "the agent loads what its image says"
            with pytest.raises(errors.CapabilityMissing, match="no snapshots of sandboxes with images"):
                await driver.snapshot_sandbox(pb.SnapshotSandboxRequest(sandbox_id="sb_image", snapshot_id="s"))
        async with _sandbox(driver, paths, "test/app:1", root=True) as sandbox:
            seen = (await run(sandbox, f"id -u; {SEEN}; echo x > /data/x && cat /data/x; su app -c 'id -u'")).stdout
            assert "CapEff:\t00000000200405fb" in seen
            assert seen.splitlines()[0] == "0"
            assert seen.splitlines()[-2:] == ["x", "1234"]
            # Root can enter the agent's directory, and can neither put a socket in place of the agent's nor read it.
            inside = "ls /run/sandmesh/agent; echo x > /run/sandmesh/agent/agent.sock; cat /proc/1/mem"
            tried = await run(sandbox, inside)
            assert tried.stdout == ""
            assert "nonexistent directory" in tried.stderr
            assert "denied" in tried.stderr
            assert {path.name for path in MeshFolders(paths).folder("sb_image").sockets.iterdir()} == {
                "agent.sock",
                "hosts",
            }
        async with _sandbox(driver, paths, "test/empty:1") as sandbox:
            assert await _cell(sandbox, "import os; print(os.getuid(), os.path.exists('/bin'))") == "0 False\n"
    assert not leftovers(engine, paths)


@pytest.mark.usefixtures("images")
async def test_what_an_engine_cannot_do_with_an_image_is_refused_by_name(
    settings: DockerSettings, engine: str, paths: MeshPaths
) -> None:
    async def refused(driver: Driver, kind: type[errors.SandmeshError], said: str, image: str, **fields: Any) -> None:
        with pytest.raises(kind, match=said):
            async with _sandbox(driver, paths, image, **fields):
                pass

    async with direct(settings.model_copy(update={"own_workspaces": True}))() as driver:
        missing = errors.CapabilityMissing
        await refused(driver, missing, "limits.disk", "test/app:1", limits=sandbox_pb2.Limits(disk_bytes=1 << 20))
        await refused(driver, missing, "snapshot_id", "test/app:1", snapshot_id="snap")
        await refused(driver, missing, "workspace_dir", "test/app:1", workspace_dir="/srv")
        await refused(driver, missing, "root inside only in an image", "", root=True)
        await refused(driver, missing, "docker load", "oci:/srv/image")
        await refused(driver, errors.InvalidArgument, "template's name, too", "base")
        await refused(driver, errors.InvalidArgument, "where the agent is", "test/cover:1")
        await refused(driver, errors.RuntimeUnavailable, "could not pull", "127.0.0.1:9/team/nothing:1")
        await refused(driver, errors.SandboxStartFailed, "no user 'toor'", "test/toor:1")
    never = settings.model_copy(update={"root_sandboxes": "never", "image_sandboxes": "pulled"})
    async with direct(never)() as driver:
        await refused(driver, errors.PermissionDenied, "SANDMESH_ROOT_SANDBOXES", "test/plain:1")
        await refused(driver, errors.PermissionDenied, "docker pull", "127.0.0.1:9/team/nothing:1")
    assert not leftovers(engine, paths)


@pytest.fixture
def subject(settings: DockerSettings) -> Subject:
    """Give the driver with an image that has Python, whose sandboxes are of an ordinary user inside."""
    made = subject_of(settings, direct(settings), WRITABLE)
    return dataclasses.replace(made, image={"image": "sandmesh/base:latest", "root": False})


@pytest.mark.parametrize("requirement", OF_IMAGES + (IN_FULL if in_full() else ()), ids=lambda one: one.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)
