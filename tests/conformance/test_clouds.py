"""The conformance suite on the drivers of clouds, against stand-ins whose instances are the image's agent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandmeshd.drivers.conformance import Requirement, Subject
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.region import Region
from tests.conformance.clouds import IN_BAD_WEATHER, SUITE, direct, remote, settings_of, spoil, subject_of
from tests.unit.agent.sandbox import Ground, prepare_ground

pytestmark = [pytest.mark.needs("root"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def ground() -> Ground:
    return asyncio.run(prepare_ground())


@pytest.fixture(params=[function_compute.stand_in, agent_run.stand_in], ids=["fc", "agentrun"])
async def cloud(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> AsyncIterator[Region]:
    async with request.param(tmp_path, ground) as made:
        with trusted(tmp_path):
            yield made


IN_FULL = os.environ.get("SANDMESH_TEST_CLOUDS") == "full"


# What holds behind gRPC holds of the driver itself, which is tried in full alone.
@pytest.fixture(params=[direct, remote] if IN_FULL else [remote])
def subject(request: pytest.FixtureRequest, cloud: Region, paths: MeshPaths) -> Subject:
    """Return the driver on a mesh of its own."""
    settings = settings_of(cloud, paths)
    return subject_of(cloud, settings, request.param(settings))


@pytest.mark.parametrize("requirement", SUITE, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject, cloud: Region) -> None:
    await requirement(subject)
    assert cloud.living == [], "what was deleted is billed"


@pytest.mark.parametrize(
    "requirement", IN_BAD_WEATHER if IN_FULL else IN_BAD_WEATHER[:1], ids=lambda requirement: requirement.__name__
)
async def test_conformance_while_the_api_is_slow_and_throttles_and_loses_answers(
    requirement: Requirement, subject: Subject, cloud: Region
) -> None:
    spoil(cloud)
    await requirement(subject)
    assert cloud.living == [], "what was deleted is billed"
    assert [mutation for mutation in cloud.mutations if not cloud.throttled[mutation] and not cloud.lost[mutation]], (
        "it was not felt"
    )
