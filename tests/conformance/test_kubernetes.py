"""The core of the conformance suite on the kubernetes driver, directly and over gRPC, on a cluster of its own."""

from __future__ import annotations

import pytest

from sandmeshd.drivers.conformance import Requirement, Subject
from sandmeshd.drivers.conformance.suite import CORE
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import Cluster
from tests.conformance.clusters import direct, remote, settings_of, subject_of
from tests.engine import in_full

pytestmark = [pytest.mark.needs("root", "docker", "kubernetes"), pytest.mark.timeout(600)]


# What holds behind gRPC holds of the driver itself.
@pytest.fixture(params=[direct, remote] if in_full() else [remote])
def subject(request: pytest.FixtureRequest, cluster: Cluster, paths: MeshPaths) -> Subject:
    """Return the driver on a mesh of its own."""
    settings = settings_of(cluster, paths)
    return subject_of(cluster, settings, request.param(settings))


@pytest.mark.parametrize("requirement", CORE, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)
