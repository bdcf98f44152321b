"""The conformance suite on the drivers of clouds, against stand-ins that start the clouds' image on an engine.

The image is what `sandmesh build base --for fc` makes; each instance is a container of the size that was rented. In the
short form a handful of requirements runs, the others run in `tests/conformance/test_clouds.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandmeshd.drivers.conformance import Requirement, Subject
from sandmeshd.drivers.conformance.requirements import calls, isolation, networks
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.instances import Instance
from tests.clouds.region import Region
from tests.conformance.clouds import IN_BAD_WEATHER, SUITE, remote, settings_of, spoil, subject_of
from tests.engine import in_full, query

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

Serve = Callable[..., AbstractAsyncContextManager[Region]]

HANDFUL: tuple[Requirement, ...] = (
    calls.kernels_of_a_sandbox_are_apart,
    networks.a_named_host_is_reached_and_no_other,
    isolation.user_code_has_no_privileges,
    isolation.user_code_cannot_touch_the_agent,
)


class Container(Instance):
    """An instance that is a container of an engine, with no network but its own."""

    def __init__(self, url: str, container: Mapping[str, Any]) -> None:
        self._url = url
        size = ["--cpus", str(container["cpu"]), "--memory", f"{container['memory']}m"]
        command = ["run", "--detach", "--network", "none", *size, str(container["image"]), *container["command"]]
        docker = ["/usr/bin/docker", "--host", url, *command]
        done = subprocess.run(docker, check=True, capture_output=True, text=True)
        self._path = f"/containers/{done.stdout.strip()}"
        super().__init__(None, self._state()["Pid"], int(container["port"]))

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def end(self) -> None:
        """Remove it."""
        query(self._url, f"{self._path}?force=1", "DELETE")

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] | None = None
        with suppress(OSError):
            found = query(self._url, f"{self._path}/json")
        return found["State"] if found else {"Running": False, "ExitCode": 137, "Pid": 0}


@pytest.fixture(scope="module")
def built(engine: str) -> list[str]:
    """Build and check the image by the command; return what it prints."""
    command = [sys.executable, "-m", "sandmeshd.cli.user", "build", "base", "--for", "fc"]
    done = subprocess.run(
        command, env={**os.environ, "SANDMESH_DOCKER_URL": engine}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_command_prints_what_pushes_the_image_and_pushes_nothing(built: list[str]) -> None:
    target = "registry.cn-hangzhou.aliyuncs.com/sandmesh/base:latest"
    tag = f"docker tag sandmesh/base:latest {target}"
    assert built == ["docker login registry.cn-hangzhou.aliyuncs.com", tag, f"docker push {target}"]


@pytest.fixture(params=[function_compute.stand_in, agent_run.stand_in], ids=["fc", "agentrun"])
async def cloud(
    request: pytest.FixtureRequest, engine: str, built: list[str], tmp_path: Path
) -> AsyncGenerator[Region]:
    serve: Serve = request.param
    async with serve(tmp_path, launch=partial(Container, engine)) as made:
        with trusted(tmp_path):
            yield made


@pytest.fixture
def subject(cloud: Region, paths: MeshPaths) -> Subject:
    """Return the driver, over gRPC, on a mesh of its own."""
    settings = settings_of(cloud, paths)
    return subject_of(cloud, settings, remote(settings))


@pytest.mark.parametrize("requirement", SUITE if in_full() else HANDFUL, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject, cloud: Region) -> None:
    await requirement(subject)
    assert cloud.living == [], "what was deleted is billed"
    assert cloud.running == [], "what was deleted runs"


@pytest.mark.parametrize(
    "requirement", IN_BAD_WEATHER if in_full() else IN_BAD_WEATHER[:1], ids=lambda requirement: requirement.__name__
)
async def test_conformance_while_the_api_is_slow_and_throttles_and_loses_answers(
    requirement: Requirement, subject: Subject, cloud: Region
) -> None:
    spoil(cloud)
    await requirement(subject)
    assert (cloud.living, cloud.running) == ([], [])
