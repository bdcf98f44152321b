"""An engine that ends while the docker driver serves, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.conformance.ending import watched
from sandmeshd.drivers.conformance.inside import evaluate
from sandmeshd.drivers.docker.app import open_driver
from sandmeshd.drivers.docker.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.engine import Daemon

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]
PATIENCE_SECONDS = 60.0


def _wanted(paths: MeshPaths, sandbox_id: str) -> pb.CreateSandboxRequest:
    spec = sandbox_pb2.SandboxSpec(template="base")
    return pb.CreateSandboxRequest(sandbox_id=sandbox_id, mesh_id=paths.mesh_id, spec=spec)


async def test_an_engine_that_ends_is_told_and_one_that_comes_back_is_used_again(
    paths: MeshPaths, served: tuple[str, Daemon | None]
) -> None:
    url, daemon = served
    if daemon is None:
        pytest.skip("an engine of the tests' own is ended here; SANDMESH_TEST_DOCKER_URL names another")
    async with asyncio.timeout(PATIENCE_SECONDS), open_driver(DockerSettings(paths=paths, url=url)) as driver:
        await driver.create_sandbox(_wanted(paths, "sb_before"))
        async with watched(driver, paths.mesh_id) as changes:
            while not (await anext(changes)).synced:
                pass
            await asyncio.to_thread(daemon.end)
            try:
                with pytest.raises(RuntimeUnavailable, match="does not answer"):
                    await driver.create_sandbox(_wanted(paths, "sb_while"))
            finally:
                await asyncio.to_thread(daemon.start)
            while (await anext(changes)).sandbox.state != pb.RUNTIME_STATE_ENDED:
                pass
        made = await driver.create_sandbox(_wanted(paths, "sb_after"))
        assert await evaluate(made.sandbox, "print(6 * 7)") == 42
        for sandbox_id in ("sb_before", "sb_while", "sb_after"):
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox_id))
        left = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))
        assert not left.sandboxes
