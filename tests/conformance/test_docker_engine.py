"""An engine that ends and comes back, that serves two nodes of a mesh, and whose containers an operator removes."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pytest
from scripts.capabilities_page import DRIVERS, EITHER

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.inside import evaluate
from sandmeshd.drivers.conformance.sandbox_end import watched
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.container_config import MESH, container_name
from sandmeshd.drivers.engine.gvisor.app import GvisorSettings
from sandmeshd.drivers.engine.runtimes import DriverName
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.engines import direct
from tests.engine import Daemon, query

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]
PATIENCE_SECONDS = 60.0


def _wanted(paths: MeshPaths, sandbox_id: str) -> pb.CreateSandboxRequest:
    spec = sandbox_pb2.SandboxSpec(template="base")
    return pb.CreateSandboxRequest(sandbox_id=sandbox_id, mesh_id=paths.mesh_id, spec=spec)


async def _listed(driver: Driver, paths: MeshPaths) -> list[tuple[str, bool]]:
    found = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))
    return [(sandbox.sandbox_id, sandbox.state == pb.RUNTIME_STATE_RUNNING) for sandbox in found.sandboxes]


async def _delete(driver: Driver, *ids: str) -> None:
    for sandbox_id in ids:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=sandbox_id))


def _volumes(url: str, paths: MeshPaths) -> list[str]:
    filters = quote(json.dumps({"label": [f"{MESH}={paths.mesh_id}"]}))
    return [volume["Name"] for volume in query(url, f"/volumes?filters={filters}")["Volumes"] or ()]


@pytest.mark.parametrize("how", ["ends", "is killed"])
async def test_an_engine_that_goes_away_is_told_and_one_that_comes_back_is_used_again(
    paths: MeshPaths, served: tuple[str, Daemon | None], how: str
) -> None:
    url, daemon = served
    if daemon is None:
        pytest.skip("an engine of the tests' own is ended here; SANDMESH_TEST_DOCKER_URL names another")
    async with asyncio.timeout(PATIENCE_SECONDS), open_driver(DockerSettings(paths=paths, url=url)) as driver:
        await driver.create_sandbox(_wanted(paths, "sb_before"))
        async with watched(driver, paths.mesh_id) as changes:
            while not (await anext(changes)).synced:
                pass
            await asyncio.to_thread(daemon.end if how == "ends" else daemon.kill)
            try:
                with pytest.raises(RuntimeUnavailable, match="does not answer"):
                    await driver.create_sandbox(_wanted(paths, "sb_while"))
            finally:
                await asyncio.to_thread(daemon.start)
            while (await anext(changes)).sandbox.state != pb.RUNTIME_STATE_ENDED:
                pass
        made = await driver.create_sandbox(_wanted(paths, "sb_after"))
        assert await evaluate(made.sandbox, "print(6 * 7)") == 42
        await _delete(driver, "sb_before", "sb_while", "sb_after")
        assert await _listed(driver, paths) == []


NAMES = "import json, socket; print(json.dumps(sorted({one[4][0] for one in socket.getaddrinfo('localhost', 80)})))"


async def test_the_loopback_has_its_name_without_a_network(paths: MeshPaths, engine: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), open_driver(DockerSettings(paths=paths, url=engine)) as driver:
        made = await driver.create_sandbox(_wanted(paths, "sb_names"))
        assert await evaluate(made.sandbox, NAMES) == ["127.0.0.1", "::1"]
        await _delete(driver, "sb_names")


async def test_two_nodes_of_a_mesh_on_one_engine_leave_each_other_alone(paths: MeshPaths, engine: str) -> None:
    of_each = [DockerSettings(paths=paths.of_node(name), node_id=name, url=engine) for name in ("one", "two")]
    for settings in of_each:
        settings.paths.make()
    async with open_driver(of_each[0]) as first, open_driver(of_each[1]) as second:
        await first.create_sandbox(_wanted(paths, "sb_first"))
        await second.create_sandbox(_wanted(paths, "sb_second"))
        assert await _listed(first, paths) == [("sb_first", True)]
        assert await _listed(second, paths) == [("sb_second", True)]
        await _delete(first, "sb_first")
        await _delete(second, "sb_second")


async def test_the_volume_of_a_container_that_an_operator_removed_goes_too(paths: MeshPaths, engine: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), open_driver(DockerSettings(paths=paths, url=engine)) as driver:
        await driver.create_sandbox(_wanted(paths, "sb_removed"))
        async with watched(driver, paths.mesh_id) as changes:
            while not (await anext(changes)).synced:
                pass
            name = container_name(paths.mesh_id, "sb_removed")
            assert len(_volumes(engine, paths)) == 1
            await asyncio.to_thread(query, engine, f"/containers/{name}?force=1", "DELETE")
            while (await anext(changes)).sandbox.state != pb.RUNTIME_STATE_ENDED:
                pass
        while _volumes(engine, paths):  # noqa: ASYNC110 - what removes it runs by itself, and tells nobody
            await asyncio.sleep(0.05)
        await _delete(driver, "sb_removed")


SETTINGS: dict[DriverName, type[DockerSettings]] = {"docker": DockerSettings, "gvisor": GvisorSettings}


@pytest.mark.parametrize("kind", ["docker", pytest.param("gvisor", marks=pytest.mark.needs("runsc"))])
async def test_the_page_of_capabilities_is_what_an_engine_answers(
    paths: MeshPaths, engine: str, kind: DriverName
) -> None:
    async with direct(SETTINGS[kind](paths=paths, url=engine))() as driver:
        reported = (await driver.get_info(pb.GetInfoRequest())).capabilities
    for name, how in list(reported.limits.items()):
        reported.limits[name] = how.replace(f"cgroup v{query(engine, '/info')['CgroupVersion']}", f"cgroup v{EITHER}")
    assert reported == DRIVERS[kind]
