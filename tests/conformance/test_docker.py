"""The conformance suite on the docker driver, directly and over gRPC, on an engine of the tests' own."""

from __future__ import annotations

import pytest

from sandmeshd.drivers.conformance import REQUIREMENTS, Requirement, Subject
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.conformance.engines import WRITABLE, direct, remote, subject_of
from tests.engine import in_full, query

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]


# What holds behind gRPC holds of the driver itself.
@pytest.fixture(params=[direct, remote] if in_full() else [remote])
def subject(request: pytest.FixtureRequest, paths: MeshPaths, engine: str, shared: str) -> Subject:
    """Give the driver on a mesh of its own."""
    settings = DockerSettings(paths=paths, url=engine, workspace_roots=(shared,))
    groups = {"/sys/fs/cgroup"} if query(engine, "/info")["CgroupVersion"] == "1" else set[str]()
    return subject_of(settings, request.param(settings), WRITABLE | groups)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)
