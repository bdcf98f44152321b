"""Drivers on stand-ins."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.region import KEYS, Region
from tests.unit.agent.sandbox import Ground, prepare_ground

SECRET = "the secret of a mesh of the tests"  # noqa: S105 - of tests


@pytest.fixture(scope="session")
def ground() -> Ground:
    return asyncio.run(prepare_ground())


@pytest.fixture
async def cloud(ground: Ground, tmp_path: Path) -> AsyncIterator[function_compute.StandIn]:
    async with function_compute.stand_in(tmp_path, ground) as made:
        with trusted(tmp_path):
            yield made


@pytest.fixture
async def runs(ground: Ground, tmp_path: Path) -> AsyncIterator[agent_run.StandIn]:
    async with agent_run.stand_in(tmp_path, ground) as made:
        with trusted(tmp_path):
            yield made


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[MeshPaths]:
    made = MeshPaths(f"clouds-{secrets.token_hex(5)}", tmp_path / "state", tmp_path / "runtime")
    made.make()
    yield made
    for folder in (made.state, made.runtime):
        remove_tree(folder)


def values_of(region: Region, paths: MeshPaths) -> dict[str, object]:
    """Return what the settings of either driver are made with."""
    [(key, secret)] = KEYS.items()
    return {
        "paths": paths,
        "endpoint": region.endpoint,
        "access_key_id": key,
        "access_key_secret": SecretStr(secret),
        "egress": EgressSettings(mesh_secret=SecretStr(SECRET)),
        "start_timeout": 60,
        "lost_seconds": 2,
    }


@pytest.fixture
def settings(cloud: function_compute.StandIn, paths: MeshPaths) -> FcSettings:
    return FcSettings.model_validate(values_of(cloud, paths))


@pytest.fixture
def run_settings(runs: agent_run.StandIn, paths: MeshPaths) -> AgentRunSettings:
    return AgentRunSettings.model_validate(values_of(runs, paths))
