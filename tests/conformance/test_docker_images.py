"""What sandboxes of the docker driver are made from and shown, beyond what every driver can, on a real engine."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiodocker import Docker

import sandmesh
import sandmeshd
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import (
    CapabilityMissing,
    ProtocolMismatch,
    SandboxStartFailed,
    SandmeshError,
    TemplateBuildFailed,
    WrongState,
)
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.inside import evaluate, run
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.images.build import DEBIAN
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_sources import list_sources
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import Template, load_templates
from tests.engine import query

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]

NOWHERE = "127.0.0.1:9/team/nothing:1"
"""An image that no registry has: nothing listens there."""


@pytest.fixture
def settings(paths: MeshPaths, engine: str) -> DockerSettings:
    """Give settings of a mesh of its own."""
    return DockerSettings(paths=paths, url=engine)


def _of_image(image: str, **fields: object) -> dict[str, Template]:
    shipped = load_templates()
    own = {"name": "own", "image": image, "image_is_shipped": False, **fields}
    return {**shipped, "own": shipped["base"].model_copy(update=own)}


@asynccontextmanager
async def _sandbox(driver: Driver, mesh_id: str, template: str) -> AsyncGenerator[pb.RuntimeSandbox]:
    spec = sandbox_pb2.SandboxSpec(template=template)
    request = pb.CreateSandboxRequest(sandbox_id="sb_own", mesh_id=mesh_id, spec=spec)
    try:
        yield (await driver.create_sandbox(request)).sandbox
    finally:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_own"))


async def _prepare(driver: Driver, template: str = "own") -> list[str]:
    return [step.message async for step in driver.prepare_template(pb.PrepareTemplateRequest(template=template))]


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Give a directory of the host that everybody may write to."""
    (tmp_path / "data").write_text("of the host\n")
    tmp_path.chmod(0o777)
    return tmp_path


async def test_what_is_granted_of_the_host_is_read_inside_and_not_written(
    settings: DockerSettings, shown: Path
) -> None:
    granting = settings.model_copy(update={"readonly_mounts": {str(shown): "/mnt/data"}})
    async with open_driver(granting) as driver, _sandbox(driver, settings.paths.mesh_id, "base") as sandbox:
        read = await run(sandbox, "cat /mnt/data/data; touch /mnt/data/new; ls /mnt/data")
    assert read.stdout == "of the host\ndata\n"
    assert "Read-only file system" in read.stderr


async def test_an_image_of_ones_own_with_this_agent_is_what_a_template_says(
    settings: DockerSettings, engine: str
) -> None:
    async with Docker(url=engine) as docker:
        await docker.images.tag("sandmesh/base:latest", "team/mine", tag="1")
    try:
        async with open_driver(settings, templates=_of_image("team/mine:1")) as driver:
            assert await _prepare(driver) == ["ready"]
            async with _sandbox(driver, settings.paths.mesh_id, "own") as sandbox:
                assert await evaluate(sandbox, "print(6 * 7)") == 42
                assert "team/mine:1" in {container["Image"] for container in query(engine, "/containers/json")}
    finally:
        async with Docker(url=engine) as docker:
            await docker.images.delete("team/mine:1")


async def test_an_image_has_the_sources_of_the_agent_and_no_others(settings: DockerSettings) -> None:
    packages = {"sandmesh": Path(sandmesh.__file__).parent, "sandmeshd": Path(sandmeshd.__file__).parent}
    async with open_driver(settings) as driver, _sandbox(driver, settings.paths.mesh_id, "base") as sandbox:
        found = await run(sandbox, "cd /opt/sandmesh/site && find sandmesh sandmeshd -type f ! -name '*.pyc'")
    assert set(found.stdout.split()) == {name for _, name in list_sources(packages)}


async def test_user_code_has_libraries_that_the_image_has_once_or_in_python_alone(settings: DockerSettings) -> None:
    code = "import fontTools.misc.bezierTools, pydantic_core; print(pydantic_core.to_json([fontTools.version != '']))"
    async with open_driver(settings) as driver, _sandbox(driver, settings.paths.mesh_id, "base") as sandbox:
        assert (await run(sandbox, f'python -c "{code}"')).stdout == "b'[true]'\n"


def test_the_image_of_sandboxes_has_at_most_350_megabytes(engine: str) -> None:
    assert query(engine, "/images/sandmesh/base:latest/json")["Size"] <= 350e6


async def test_node_and_uv_are_in_an_image_of_their_own(
    settings: DockerSettings, paths: MeshPaths, engine: str, tmp_path: Path
) -> None:
    built = await asyncio.to_thread(_build, tmp_path, engine, paths, (*BUILD, "base-node", "--driver", "docker"))
    assert built.returncode == 0, built.stderr
    assert "base-node is ready" in built.stderr
    programs = "for name in node npx uvx; do command -v $name; done"
    for template, found in (("base", ""), ("own", "/opt/env/bin/node\n/opt/env/bin/npx\n/opt/env/bin/uvx\n")):
        templates = _of_image("base-node", image_is_shipped=True)
        async with open_driver(settings, templates=templates) as driver:
            await _prepare(driver, template)
            async with _sandbox(driver, settings.paths.mesh_id, template) as sandbox:
                assert (await run(sandbox, programs)).stdout == found
                if found:
                    assert (await run(sandbox, "node -p '6 * 7'; npx --version; uvx --version")).stdout.startswith(
                        "42\n"
                    )


@pytest.mark.parametrize(
    ("image", "kind", "said"),
    [
        (DEBIAN, ProtocolMismatch, "has no agent of sandmesh"),
        (NOWHERE, TemplateBuildFailed, "docker pull"),
        ("No Image", TemplateBuildFailed, "could not be pulled"),
    ],
)
async def test_an_image_that_will_not_do_is_refused_with_what_to_do(
    settings: DockerSettings, image: str, kind: type[SandmeshError], said: str
) -> None:
    async with open_driver(settings, templates=_of_image(image)) as driver:
        with pytest.raises(kind, match=said):
            await _prepare(driver)
        with pytest.raises(WrongState, match="not prepared") as caught:
            async with _sandbox(driver, settings.paths.mesh_id, "own"):
                pass
        assert image in caught.value.facts["fix"]
        info = await driver.get_info(pb.GetInfoRequest())
        assert {template.name: template.prepared for template in info.templates}["own"] is False


def _build_image(engine: str, folder: Path, name: str, *lines: str) -> None:
    (folder / "Dockerfile").write_text("\n".join(lines))
    command = ("docker", "--host", engine, "build", "--quiet", "--tag", name, str(folder))
    subprocess.run(command, check=True, capture_output=True, timeout=200)


async def test_an_image_that_somebody_made_by_hand_is_not_built_over(
    settings: DockerSettings, engine: str, tmp_path: Path
) -> None:
    tag = f"own-{secrets.token_hex(5)}"
    name = f"sandmesh/base:{tag}"
    _build_image(engine, tmp_path, name, f"FROM {DEBIAN}", "RUN echo mine >/mine")
    before = query(engine, f"/images/{name}/json")["Id"]
    try:
        async with open_driver(settings.model_copy(update={"tag": tag})) as driver:
            with pytest.raises(TemplateBuildFailed, match=f"{name} exists, and was not built by sandmesh") as caught:
                await _prepare(driver, "base")
        assert caught.value.facts["fix"].startswith(f"docker rmi {name}")
        assert query(engine, f"/images/{name}/json")["Id"] == before
    finally:
        async with Docker(url=engine) as docker:
            await docker.images.delete(name)


async def test_an_agent_that_ended_at_once_is_reported_with_the_last_lines_of_its_container(
    settings: DockerSettings, engine: str, tmp_path: Path
) -> None:
    _build_image(
        engine, tmp_path, "team/broken:1", "FROM sandmesh/base:latest", "RUN rm -r /opt/sandmesh/site/sandmeshd"
    )
    try:
        async with open_driver(settings, templates=_of_image("team/broken:1")) as driver:
            await _prepare(driver)
            with pytest.raises(SandboxStartFailed) as caught:
                async with _sandbox(driver, settings.paths.mesh_id, "own"):
                    pass
        assert "its agent ended immediately; its last output: " in caught.value.message
        assert "No module named" in caught.value.message
    finally:
        async with Docker(url=engine) as docker:
            await docker.images.delete("team/broken:1")


async def test_a_setting_of_another_runtime_is_refused(settings: DockerSettings) -> None:
    templates = _of_image("sandmesh/base:latest", runtime_config={"gpu": "1"})
    async with open_driver(settings, templates=templates) as driver:
        with pytest.raises(CapabilityMissing, match="gpu"):
            await _prepare(driver)
        with pytest.raises(CapabilityMissing, match="gpu"):
            async with _sandbox(driver, settings.paths.mesh_id, "own"):
                pass


async def test_a_template_of_high_security_says_that_its_network_is_fixed(settings: DockerSettings) -> None:
    templates = _of_image("sandmesh/base:latest", security_level="high")
    async with open_driver(settings, templates=templates) as driver:
        info = await driver.get_info(pb.GetInfoRequest())
    assert {template.name: template.network_fixed for template in info.templates}["own"] is True


BUILD = ("-m", "sandmeshd.cli.user", "build")


def _build(
    folder: Path, engine: str, paths: MeshPaths, command: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    variables = {"SANDMESH_DOCKER_URL": engine, "SANDMESH_MESH_ID": paths.mesh_id, "SANDMESH_IMAGE_TAG": "latest"}
    arguments = command or (*BUILD, str(folder), "--driver", "docker")
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize(
    ("lines", "exit_code", "said"),
    [
        ("FROM ${BASE}\nRUN echo sunny >/etc/weather\n", 0, "testing that user code cannot touch the agent"),
        ("FROM ${BASE}\nRUN rm -r /opt/env/lib/python3*/site-packages/IPython\n", 4, "fails the test that"),
        ("FROM debian:bookworm-slim\nRUN true\n", 1, "has no agent of sandmesh"),
        (
            "FROM ${BASE}\nLABEL dev.sandmesh.protocol=0\n",
            1,
            "speaks protocol 0, and this mesh speaks 1: build it FROM",
        ),
    ],
    ids=["own", "spoilt", "without an agent", "with an older protocol"],
)
async def test_a_folder_with_a_dockerfile_is_built_on_this_base_and_its_image_is_tried(
    paths: MeshPaths, engine: str, tmp_path: Path, lines: str, exit_code: int, said: str
) -> None:
    folder = tmp_path / f"own-{secrets.token_hex(5)}"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"ARG BASE=sandmesh/base:latest\n{lines}")
    try:
        done = await asyncio.to_thread(_build, folder, engine, paths)
    finally:
        async with Docker(url=engine) as docker:
            await docker.images.delete(f"sandmesh/{folder.name}:latest")
    assert said in done.stderr
    assert done.returncode == exit_code
    assert (f"sandmesh/{folder.name}:latest is ready" in done.stderr) is (exit_code == 0)


CLASS = """
from sandmesh import BaseSandbox, SandboxRegistry

@SandboxRegistry.register("{image}", sandbox_type="sunny")
class SunnySandbox(BaseSandbox):
    pass
"""
BUILDER = "from sandmeshd.cli.agentscope.scripts import sandbox_builder; sandbox_builder()"


async def test_the_old_builder_makes_a_classs_image_from_its_dockerfile_and_the_working_directory(
    paths: MeshPaths, engine: str, tmp_path: Path
) -> None:
    image = f"own-{secrets.token_hex(5)}:1.0"
    (tmp_path / "weather").write_text("sunny")
    (tmp_path / "sunny.py").write_text(CLASS.format(image=image))
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY weather /etc/weather\n")
    options = ("sunny", "--dockerfile_path", "docker/Dockerfile", "--extension", "sunny.py")
    try:
        done = await asyncio.to_thread(_build, tmp_path, engine, paths, ("-c", BUILDER, *options))
    finally:
        async with Docker(url=engine) as docker:
            await docker.images.delete(image)
    assert "testing that user code cannot touch the agent" in done.stderr
    assert f"{image} is ready" in done.stderr
    assert done.returncode == 0
