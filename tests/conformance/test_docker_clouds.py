"""The image that `sandmesh build base --for fc` makes, started by the clouds' stand-ins on an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds import agent_run, function_compute
from tests.clouds.authorities import trusted
from tests.clouds.instances import Instance
from tests.clouds.region import Region
from tests.conformance.clouds import settings_of

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

Serve = Callable[..., AbstractAsyncContextManager[Region]]


class Container(Instance):
    """An instance that is a container of an engine, with no network but its own."""

    def __init__(self, url: str, container: Mapping[str, Any]) -> None:
        self._url = url
        command = ["run", "--detach", "--network", "none", str(container["image"]), *container["command"]]
        self._name = self._docker(*command).strip()
        super().__init__(None, self._state()["Pid"], int(container["port"]))

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        state = self._state()
        return None if state["Running"] else int(state["ExitCode"])

    def end(self) -> None:
        """Remove it."""
        self._docker("rm", "--force", self._name)

    def _state(self) -> dict[str, Any]:
        with suppress(subprocess.CalledProcessError):
            found: dict[str, Any] = json.loads(self._docker("inspect", "--format", "{{json .State}}", self._name))
            return found
        return {"Running": False, "ExitCode": 137, "Pid": 0}

    def _docker(self, *arguments: str) -> str:
        command = ["/usr/bin/docker", "--host", self._url, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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
async def cloud(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> AsyncGenerator[Region]:
    serve: Serve = request.param
    async with serve(tmp_path, launch=partial(Container, engine)) as made:
        with trusted(tmp_path):
            yield made


@pytest.mark.usefixtures("built")
async def test_a_stand_in_starts_the_image_itself_and_nothing_of_it_is_left(cloud: Region, paths: MeshPaths) -> None:
    settings = settings_of(cloud, paths)
    spec = sandbox_pb2.SandboxSpec(template="base")
    request = pb.CreateSandboxRequest(sandbox_id="one", mesh_id=paths.mesh_id, spec=spec)
    async with open_plugin(settings.driver, settings) as driver:
        made = (await driver.create_sandbox(request)).sandbox
        done = await run(made, "id -u; echo a > /workspace/x; cat /workspace/x; ls /sys/class/net")
        assert done.stdout == "1000\na\nlo\n"
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert (cloud.living, cloud.running) == ([], [])
