"""Agents that are reached over a network: on an engine of this machine that shares no files, and on one of another."""

from __future__ import annotations

import pytest

from sandmeshd.drivers.conformance import REQUIREMENTS, Requirement
from sandmeshd.drivers.conformance.requirements import isolation, lifecycle, networks
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.engines import WRITABLE, direct, subject_of
from tests.engine import in_full, query
from tests.remote_engine import RemoteEngine

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

ESSENCE = (
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    lifecycle.a_cancelled_create_leaves_nothing,
    networks.a_named_host_is_reached_and_no_other,
    networks.public_is_no_way_to_the_node,
    isolation.the_network_is_loopback_only,
    isolation.user_code_cannot_touch_the_agent,
)
"""What differs most from a socket: how an agent is found again, what is taken back, and the way out."""

CORE = (
    [requirement for requirement in REQUIREMENTS if not requirement.__module__.endswith(".limits")]
    if in_full()
    else ESSENCE
)
"""What limits hold by is the same in every way."""

LINKED = ("calls", "files", "snapshots", "watching")
"""What is no other on a network than at a port: the same link carries it."""

WALLS = [requirement for requirement in CORE if not requirement.__module__.endswith(LINKED)]


def _writable(url: str) -> frozenset[str]:
    groups = {"/sys/fs/cgroup"} if query(url, "/info")["CgroupVersion"] == "1" else set[str]()
    return (WRITABLE - {"/run/sandmesh/agent"}) | {"/run/sandmesh", "/opt/sandmesh/trusted"} | groups


@pytest.mark.parametrize("requirement", WALLS, ids=lambda requirement: requirement.__name__)
async def test_conformance_on_networks(requirement: Requirement, paths: MeshPaths, engine: str) -> None:
    settings = DockerSettings(paths=paths, url=engine, agent_link="network")
    await requirement(subject_of(settings, direct(settings), _writable(engine)))


@pytest.mark.parametrize("requirement", CORE, ids=lambda requirement: requirement.__name__)
async def test_conformance_at_ports(requirement: Requirement, paths: MeshPaths, away: RemoteEngine) -> None:
    settings = DockerSettings(
        paths=paths, url=away.url, certificates=away.certificates, agent_link="port", publish_address=away.address
    )
    await requirement(subject_of(settings, direct(settings), _writable(away.inside), away.inside))
