"""The conformance suite on the gvisor driver, directly and over gRPC, on an engine of the tests' own with runsc."""

from __future__ import annotations

import platform
from typing import Any

import pytest
from aiodocker import Docker

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.conformance import REQUIREMENTS, Requirement, Subject
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.engine.container_config import container_config, container_name
from sandmeshd.drivers.engine.gvisor.app import GvisorSettings, open_driver
from sandmeshd.drivers.kubernetes.cluster.canary import is_gvisor
from sandmeshd.drivers.node.records import MeshFolders, SpecRecord
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.engines import WRITABLE, direct, leftovers, remote, subject_of
from tests.engine import in_full
from tests.processes import named

pytestmark = [pytest.mark.needs("root", "docker", "runsc"), pytest.mark.timeout(600)]


@pytest.fixture(params=[direct, remote] if in_full() else [direct])
def subject(request: pytest.FixtureRequest, paths: MeshPaths, engine: str, shared: str) -> Subject:
    """Give the driver on a mesh of its own."""
    settings = GvisorSettings(paths=paths, url=engine, workspace_roots=(shared,))
    return subject_of(settings, request.param(settings), WRITABLE - {"/dev/mqueue"})


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)


async def _kernel_log(engine: str, container: str) -> str:
    async with Docker(url=engine) as docker:
        containers: Any = docker.containers
        command = await containers.container(container).exec(["dmesg"])
        said = b""
        async with command.start() as stream:
            while (part := await stream.read_out()) is not None:
                said += part.data
    return said.decode()


async def test_the_kernel_inside_is_gvisors(paths: MeshPaths, engine: str) -> None:
    spec = sandbox_pb2.SandboxSpec(template="base")
    request = pb.CreateSandboxRequest(sandbox_id="sb_kernel", mesh_id=paths.mesh_id, spec=spec)
    async with open_driver(GvisorSettings(paths=paths, url=engine, ends_with_driver=True)) as driver:
        made = await driver.create_sandbox(request)
        assert "Starting gVisor" in await _kernel_log(engine, container_name(paths.mesh_id, "sb_kernel"))
        inside = await run(made.sandbox, "cat /proc/version")
        async with open_link(made.sandbox) as link:
            assert is_gvisor(link.hello.result().kernel)
    assert inside.stdout.startswith("Linux version")
    assert platform.version() not in inside.stdout


async def test_what_an_engine_that_died_in_a_start_left_running_is_ended_when_it_is_back(
    paths: MeshPaths, engine: str
) -> None:
    spec = sandbox_pb2.SandboxSpec(template="base")
    begun = pb.RuntimeSandbox(sandbox_id="sb_begun", mesh_id=paths.mesh_id, spec=spec, state=pb.RUNTIME_STATE_STARTING)
    folder, settings = MeshFolders(paths).folder("sb_begun"), GvisorSettings(paths=paths, url=engine)
    folder.root.mkdir()
    folder.sockets.mkdir()
    (folder.sockets / "hosts").touch()
    SpecRecord(begun, 0).write(folder)
    async with open_driver(settings) as driver, Docker(url=engine) as docker:
        # It has noted the container, and has forgotten what it had begun for it.
        config = container_config(settings, folder, spec, "sandmesh/base:latest", trusts=False)
        containers: Any = docker.containers
        container = await containers.create(config, name=container_name(paths.mesh_id, "sb_begun"))
        with named("/usr/bin/runsc-sandbox", "-s", "boot", str(container.id)) as kernel:
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_begun"))
            assert kernel.wait(30) == -9
    assert not leftovers(engine, paths)
