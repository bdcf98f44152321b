"""The conformance suite on the fc driver, against a stand-in: the core, and what else an instance can show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandmeshd.agentlink import addresses
from sandmeshd.drivers.conformance import Requirement, Subject, calls, files, lifecycle, networks
from sandmeshd.drivers.conformance.suite import CORE
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds.function_compute import StandIn, stand_in
from tests.conformance.clouds import direct, remote, settings_of, subject_of
from tests.engine import in_full
from tests.unit.agent.sandbox import Ground, prepare_ground

pytestmark = [pytest.mark.needs("root"), pytest.mark.timeout(300)]

BEYOND: tuple[Requirement, ...] = (
    lifecycle.a_sandbox_in_which_nothing_went_wrong_has_no_last_words,
    calls.a_broken_link_loses_nothing_of_a_stream,
    calls.kernels_of_a_sandbox_are_apart,
    files.large_files_come_back_byte_by_byte,
    files.an_upload_that_is_cut_short_leaves_nothing,
    networks.a_named_host_is_reached_and_no_other,
    networks.a_sandbox_without_a_grant_has_no_way_out,
    networks.refusals_are_told_to_who_watches,
)


@pytest.fixture(scope="module")
def ground() -> Ground:
    return asyncio.run(prepare_ground())


@pytest.fixture
async def cloud(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandIn]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    addresses.system_authorities.cache_clear()
    async with stand_in(tmp_path, ground) as made:
        yield made
    addresses.system_authorities.cache_clear()


# What holds behind gRPC holds of the driver itself.
@pytest.fixture(params=[direct, remote] if in_full() else [remote])
def subject(request: pytest.FixtureRequest, cloud: StandIn, paths: MeshPaths) -> Subject:
    """Return the driver on a mesh of its own."""
    settings = settings_of(cloud, paths)
    return subject_of(cloud, settings, request.param(settings))


@pytest.mark.parametrize("requirement", [*CORE, *BEYOND], ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject, cloud: StandIn) -> None:
    await requirement(subject)
    assert cloud.living == [], "what was deleted is billed"
