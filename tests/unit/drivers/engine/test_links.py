"""How agents are reached over a network: what may be set, and what an engine is asked for."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.engine.container_config import OWNER, container_config
from sandmeshd.drivers.engine.reach.links import AgentAccess
from sandmeshd.drivers.engine.reach.network import OUR_DIRECTORY, files_for, network_config, with_network
from sandmeshd.drivers.engine.requirements import capabilities, check
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths

AT_PORTS = AgentAccess("port", "owner", "192.0.2.1", 20000, 20001)
ON_NETWORKS = AgentAccess("network", "owner")
PATHS = MeshPaths("unit", Path("/nonexistent"), Path("/nonexistent"))


def _body(tmp_path: Path, link: AgentAccess) -> dict[str, Any]:
    settings = DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path), link=link)
    spec = sandbox_pb2.SandboxSpec(template="base")
    body = container_config(settings, MeshFolders(settings.paths).folder("sb_1"), spec, "image", trusts=True)
    return with_network(body, link, "sandmesh-unit-sb_1", 20001 if link.mode == "port" else 0)


@pytest.mark.parametrize("link", [AT_PORTS, ON_NETWORKS], ids=["port", "network"])
def test_a_container_on_a_network_has_no_file_of_this_machine_and_one_capability_more(
    tmp_path: Path, link: AgentAccess
) -> None:
    body = _body(tmp_path, link)
    host = body["HostConfig"]
    assert {mount["Type"] for mount in host["Mounts"]} == {"volume"}
    assert all(mount["VolumeOptions"]["Labels"][OWNER] == "owner" for mount in host["Mounts"])
    assert host["CapAdd"] == ["KILL", "SETGID", "SETUID", "SETPCAP", "NET_ADMIN"]
    assert (host["Dns"], body["Cmd"]) == (["127.0.0.1"], ["--shut-in", "1000,8571"])


def test_a_port_is_published_on_one_address_and_on_a_network_none_is(tmp_path: Path) -> None:
    published = _body(tmp_path, AT_PORTS)["HostConfig"]
    assert published["PortBindings"] == {"8571/tcp": [{"HostIp": "192.0.2.1", "HostPort": "20001"}]}
    body = _body(tmp_path, ON_NETWORKS)
    assert "PortBindings" not in body["HostConfig"]
    assert body["HostConfig"]["NetworkMode"] == "sandmesh-unit-sb_1"
    network = network_config(body, "sandmesh-unit-sb_1")
    assert (network["Internal"], network["Labels"][OWNER]) == (True, "owner")


def test_what_an_agent_is_told_is_its_own_to_read() -> None:
    own, *_ = files_for({"config": b"x", "tls": b"y"}, trusts=False)
    assert own.path == OUR_DIRECTORY
    with tarfile.open(fileobj=io.BytesIO(own.tar)) as archive:
        found = {entry.name: (oct(entry.mode), entry.uid, entry.gid) for entry in archive}
    assert found == {
        "agent": ("0o700", 900, 900),
        "agent/config": ("0o600", 900, 900),
        "agent/tls": ("0o600", 900, 900),
    }


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "engine.example"])  # noqa: S104 - refused
def test_ports_are_published_on_one_address_and_never_on_all(address: str) -> None:
    with pytest.raises(ValidationError, match="set one"):
        DockerSettings(paths=PATHS, publish_address=address)


@pytest.mark.parametrize("ports", [(80, 90), (3000, 2000), (65000, 70000)])
def test_a_range_of_ports_that_is_none_is_refused(ports: tuple[int, int]) -> None:
    with pytest.raises(ValidationError, match="from 1024 to 65535"):
        DockerSettings(paths=PATHS, agent_ports=ports)


def test_none_is_not_promised_at_ports_and_every_sandbox_needs_one() -> None:
    none = sandbox_pb2.NETWORK_MODE_NONE
    assert none in capabilities(DOCKER, {}, ON_NETWORKS).network_modes
    granted = capabilities(DOCKER, {}, AT_PORTS)
    assert (none in granted.network_modes, granted.agent_port, granted.workspace_dir) == (False, True, False)


@pytest.mark.parametrize(
    ("link", "spec", "needs"),
    [
        (AT_PORTS, {"network": sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_NONE)}, "network none"),
        (AT_PORTS, {"workspace_dir": "/data"}, "workspace_dir"),
        (ON_NETWORKS, {"workspace_dir": "/data"}, "workspace_dir"),
        (ON_NETWORKS, {}, "ports"),
    ],
)
def test_what_cannot_be_enforced_is_named(link: AgentAccess, spec: dict[str, Any], needs: str) -> None:
    request = pb.CreateSandboxRequest(spec=sandbox_pb2.SandboxSpec(template="base", **spec), ports=[20000])
    with pytest.raises(CapabilityMissing) as caught:
        check(DOCKER, request, {}, link)
    assert needs in caught.value.facts["needs"]
