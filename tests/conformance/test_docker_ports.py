"""Meshes whose engine is on another machine: ports found taken, exhausted and given back, and what is refused there."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, RuntimeUnavailable, SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.connection import open_link
from sandmeshd.agentlink.link import request
from sandmeshd.drivers.conformance.inside import evaluate
from sandmeshd.drivers.conformance.inside import run as run_inside
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.container_config import MESH, container_name
from sandmeshd.drivers.engine.gvisor.app import GvisorSettings
from sandmeshd.drivers.engine.reach.links import LinkMode
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.mesh import Mesh, MeshSettings, open_mesh
from sandmeshd.mesh.sweep import remove
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from tests.conformance.engines import leftovers
from tests.engine import query, run
from tests.remote_engine import RemoteEngine, blind_engine

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(300)]
FIRST = 20000


@asynccontextmanager
async def _mesh(away: RemoteEngine, **options: object) -> AsyncGenerator[Mesh]:
    values = {
        "mesh_id": f"test-{secrets.token_hex(5)}",
        "ephemeral": True,
        "driver": "docker",
        "docker_url": away.url,
        "docker_certificates": away.certificates,
        "docker_publish_address": away.address,
        "docker_agent_ports": (FIRST, FIRST + 1),
        **options,
    }
    settings = MeshSettings.model_validate(values)
    try:
        async with asyncio.timeout(240), open_mesh(settings, lambda message, fraction: None) as mesh:
            yield mesh
    finally:
        remove(settings.paths)
    mine = quote(json.dumps({"label": [f"{MESH}={settings.mesh_id}"]}))
    places = (f"/containers/json?all=1&filters={mine}", f"/networks?filters={mine}")
    left = [query(away.inside, place) for place in places]
    assert (*left, query(away.inside, f"/volumes?filters={mine}")["Volumes"]) in (([], [], []), ([], [], None))


def _settings(
    paths: MeshPaths, away: RemoteEngine, cls: type[DockerSettings] = DockerSettings, **fields: object
) -> DockerSettings:
    values = {"paths": paths, "url": away.url, "certificates": away.certificates, "publish_address": away.address}
    return cls.model_validate({**values, **fields})


def _wanted(paths: MeshPaths, port: int = FIRST) -> pb.CreateSandboxRequest:
    spec = sandbox_pb2.SandboxSpec(template="base")
    return pb.CreateSandboxRequest(sandbox_id="sb_port", mesh_id=paths.mesh_id, spec=spec, ports=[port])


async def test_a_port_that_somebody_else_has_is_passed_over_and_one_that_is_leased_is_waited_for(
    away: RemoteEngine,
) -> None:
    async with _mesh(away) as mesh:
        with away.occupied(FIRST):
            async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
                assert (await box.run_ipython_cell("6 * 7")).text == "42"
                assert (await box.get_info())["ports"] == [FIRST + 1]
                waiting = asyncio.create_task(_ports_of_another(mesh))
                # Its turn comes when the port is free, and not before.
                assert not (await asyncio.wait([waiting], timeout=0.5))[0]
            assert await waiting == [FIRST + 1]


async def test_ports_that_are_all_somebody_elses_are_told_by_name(away: RemoteEngine) -> None:
    async with _mesh(away) as mesh:
        wanted = BaseSandboxAsync(base_url=mesh.addresses[0])
        taken = pytest.raises(RuntimeUnavailable, match="no other to lease")
        with away.occupied(FIRST), away.occupied(FIRST + 1), taken:
            await wanted.start()


async def _ports_of_another(mesh: Mesh) -> object:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        return (await box.get_info())["ports"]


async def test_what_needs_files_or_no_network_is_refused_by_name_also_where_a_pool_waits(
    away: RemoteEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = str(tmp_path_factory.mktemp("files"))
    async with _mesh(away, pools={"base": 1}, workspace_roots=[folder]) as mesh:
        for options, needs in (({"network": "none"}, "network none"), ({"workspace_dir": folder}, "workspace_dir")):
            with pytest.raises(CapabilityMissing) as caught:
                await BaseSandboxAsync(base_url=mesh.addresses[0], **options).start()  # type: ignore[arg-type]  # by name
            assert needs in caught.value.facts["needs"]
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            held = (await box.get_info())["enforced"]["network"]
            assert held == "public: routing rule in its namespace, egress proxy"


async def test_a_link_outlives_the_routes_that_were_looked_up_for_it(paths: MeshPaths, away: RemoteEngine) -> None:
    async with asyncio.timeout(120), open_driver(_settings(paths, away)) as driver:
        made = (await driver.create_sandbox(_wanted(paths))).sandbox
        container = query(away.inside, f"/containers/{container_name(paths.mesh_id, 'sb_port')}/json")
        async with open_link(made, 60) as link:
            ping = agent_pb2.ToAgent(ping=agent_pb2.Ping())
            await request(link, ping, 60)
            entered = ["nsenter", "--net", f"--target={container['State']['Pid']}"]
            await asyncio.to_thread(run, *entered, "ip", "route", "flush", "cache")
            await request(link, ping, 60)
        assert await evaluate(made, "print(6 * 7)") == 42
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_port"))


async def test_an_agent_at_a_port_answers_nobody_without_its_token_and_nobody_else_answers_for_it(
    paths: MeshPaths, away: RemoteEngine
) -> None:
    async with asyncio.timeout(120), open_driver(_settings(paths, away)) as driver:
        made = (await driver.create_sandbox(_wanted(paths))).sandbox
        inspected = json.dumps(query(away.inside, f"/containers/{container_name(paths.mesh_id, 'sb_port')}/json"))
        assert made.agent_token not in inspected
        for change in ({"agent_token": "another"}, {"endpoint": made.endpoint.replace("pin=", "pin=0")}):
            other = pb.RuntimeSandbox(**{"sandbox_id": "sb_port", "endpoint": made.endpoint, **change})  # type: ignore[arg-type]  # by name
            with pytest.raises(SandboxLost):
                async with open_link(other):
                    pass
        seen = await run_inside(made, "cat /run/sandmesh/agent/*; env; ls /run/sandmesh")
        assert made.agent_token not in seen.stdout
        assert "PRIVATE KEY" not in seen.stdout
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_port"))


async def test_a_clash_leaves_nothing_and_says_which_port(paths: MeshPaths, away: RemoteEngine) -> None:
    async with asyncio.timeout(120), open_driver(_settings(paths, away)) as driver:
        with away.occupied(FIRST), pytest.raises(SandboxStartFailed, match="in use by another program") as caught:
            await driver.create_sandbox(_wanted(paths))
        assert caught.value.facts["taken_port"] == str(FIRST)
        listed = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=paths.mesh_id))
        assert not listed.sandboxes
        # Without a lease, or with a port that is none of the range, nothing is made either.
        for ports, kind in (([], CapabilityMissing), ([80], InvalidArgument)):
            request = _wanted(paths)
            request.ports[:] = ports
            with pytest.raises(kind):
                await driver.create_sandbox(request)


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        ({"publish_address": ""}, RuntimeUnavailable, "SANDMESH_DOCKER_PUBLISH_ADDRESS"),
        ({"publish_address": "", "agent_link": "port"}, InvalidArgument, "SANDMESH_DOCKER_PUBLISH_ADDRESS"),
        ({"agent_link": "socket"}, RuntimeUnavailable, "does not see"),
        ({"cls": GvisorSettings}, RuntimeUnavailable, "does not see"),
        ({"cls": GvisorSettings, "agent_link": "port"}, RuntimeUnavailable, "only by sockets"),
        ({"readonly_mounts": {"/usr": "/mnt/usr"}}, InvalidArgument, "SANDMESH_READONLY_MOUNTS"),
    ],
)
async def test_a_setting_that_does_not_fit_is_refused_when_the_driver_starts(
    paths: MeshPaths, away: RemoteEngine, fields: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        async with open_driver(_settings(paths, away, **fields)):
            pass


async def test_an_address_that_the_engines_machine_does_not_have_is_refused(
    paths: MeshPaths, away: RemoteEngine
) -> None:
    settings = _settings(paths, away, publish_address="192.0.2.1")
    async with asyncio.timeout(120), open_driver(settings) as driver:
        with pytest.raises(RuntimeUnavailable, match="SANDMESH_DOCKER_PUBLISH_ADDRESS"):
            await driver.create_sandbox(_wanted(paths))


@pytest.mark.parametrize("way", ["network", "port"])
async def test_a_driver_is_blind_to_what_another_machines_made_and_adopts_its_own(
    paths: MeshPaths, engine: str, away: RemoteEngine, way: LinkMode
) -> None:
    local = DockerSettings(paths=paths, url=engine, agent_link="network")
    settings = _settings(paths, away) if way == "port" else local
    request = _wanted(paths)
    if way == "network":
        del request.ports[:]
    query = pb.ListSandboxesRequest(mesh_id=paths.mesh_id)
    async with asyncio.timeout(120):
        async with open_driver(settings) as driver:
            made = (await driver.create_sandbox(request)).sandbox
        other = MeshPaths(paths.mesh_id, paths.state, paths.runtime)
        other.make()
        async with open_driver(settings.model_copy(update={"paths": other})) as driver:
            assert not (await driver.list_sandboxes(query)).sandboxes
        async with open_driver(settings) as driver:
            [found] = (await driver.list_sandboxes(query)).sandboxes
            assert (found.endpoint, found.agent_token) == (made.endpoint, made.agent_token)
            assert await evaluate(found, "print(6 * 7)") == 42
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_port"))
    assert not leftovers(engine if way == "network" else away.inside, paths)


async def test_an_engine_of_this_machine_that_sees_other_files_is_reached_by_networks(
    paths: MeshPaths, tmp_path: Path
) -> None:
    with blind_engine(tmp_path, [default_state_directory(), default_runtime_directory()]) as url:
        async with open_driver(DockerSettings(paths=paths, url=url)) as driver:
            info = await driver.get_info(pb.GetInfoRequest())
        assert info.runtime_version.endswith(", agents on separate networks")
        with pytest.raises(RuntimeUnavailable, match="does not see"):
            async with open_driver(DockerSettings(paths=paths, url=url, agent_link="socket")):
                pass
