"""What a build is told of this machine, and what an image is made of."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandmesh.errors import InvalidArgument, RuntimeUnavailable, TemplateBuildFailed
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.drivers.egress import EgressSettings, PackageIndexes
from sandmeshd.drivers.engine.images.build import ImageBuilder, fill_context, images_folder, own_name
from sandmeshd.drivers.engine.images.host import proxy_arguments, write_secrets
from sandmeshd.drivers.engine.images.layer import UpperLayer
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.template_builds import build_images
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import load_templates

ROOT = Path(__file__).parents[4]
BASE_IMAGE = images_folder() / "base"
INDEXES = PackageIndexes(pip="https://user:word@index.example/simple", pip_extra=("file:///opt/mine",))
EGRESS = EgressSettings(indexes=INDEXES, proxy=SecretStr("http://proxy.example:3128"), no_proxy="localhost")


def test_indexes_go_into_a_secret_without_directories_of_this_machine(tmp_path: Path) -> None:
    text = write_secrets(tmp_path, EGRESS)["pip"].read_text()
    assert "index-url = https://user:word@index.example/simple\n" in text
    assert "/opt/mine" not in text


def test_the_proxy_is_told_to_apt_and_as_the_arguments_that_no_image_records(tmp_path: Path) -> None:
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in write_secrets(tmp_path, EGRESS)["apt"].read_text()
    assert set(proxy_arguments(EGRESS)) == {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
    assert proxy_arguments(EgressSettings()) == {}


def _copied(program: str, roots: list[Path], target: Path) -> set[str]:
    subprocess.run([sys.executable, "-I", "-S", program, target, *roots], check=True)
    return {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}


async def test_an_image_has_the_same_files_as_sandboxes_of_the_bubblewrap_driver(tmp_path: Path) -> None:
    (run,) = re.findall(r"python3 -I -S /src/(\S+agent_sources\.py) ", (BASE_IMAGE / "Dockerfile").read_text())
    context = fill_context(tmp_path / "context", "base")
    by_hand = _copied(str(ROOT / run), [ROOT / "sdk", ROOT / "services"], tmp_path / "by-hand")
    by_command = _copied(str(context / run), [context / "sdk", context / "services"], tmp_path / "by-command")
    agent = AgentTree(tmp_path / "cache")
    await agent.build()
    there = [path for name in ("sandmesh", "sandmeshd") for path in (agent.site / name).rglob("*.*")]
    own = [path for path in there if path.suffix != ".pyc"]
    assert by_hand == by_command == {"__main__.py", *(str(path.relative_to(agent.site)) for path in own)}


def test_the_image_is_labelled_with_the_protocol_of_its_agent() -> None:
    assert f'dev.sandmesh.protocol="{LINK_PROTOCOL}"' in (BASE_IMAGE / "Dockerfile").read_text()


def test_an_images_name_has_registry_namespace_and_tag(tmp_path: Path) -> None:
    settings = DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path), namespace="team", tag="1.2")
    assert ImageBuilder(settings).image_name("base") == "team/base:1.2"
    there = settings.model_copy(update={"registry": "registry.example:5000"})
    assert ImageBuilder(there).image_name("base") == "registry.example:5000/team/base:1.2"
    assert ImageBuilder(there).image_name("base", "linux/arm64") == "registry.example:5000/team/base:1.2-arm64"


@pytest.mark.parametrize(
    ("template", "platform", "message"),
    [
        ("base", "linux/riscv64", "linux/amd64 or linux/arm64"),
        ("base", "arm64", "linux/amd64 or linux/arm64"),
        ("filesystem", "linux/arm64", "templates share base"),
    ],
)
async def test_what_is_built_for_no_platform_is_refused_before_anything_is_asked(
    template: str, platform: str, message: str
) -> None:
    settings = MeshSettings.model_validate({"driver": "docker", "docker_url": "unix:///nonexistent/engine"})
    with pytest.raises(InvalidArgument, match=message):
        [step async for step in build_images(settings, template, True, platform)]


async def test_a_platform_is_built_from_its_own_base_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *inspect*-amd64) exit 1;; esac\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    builder = ImageBuilder(DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path)))
    for platform in ("linux/arm64", "linux/amd64"):
        assert [step async for step in builder.build("base", platform)]
    arm, amd = [line for line in log.read_text().splitlines() if line.startswith("build ")]
    assert "--build-arg DEBIAN=debian:bookworm-slim-arm64" in arm
    assert "--tag sandmesh/base:latest-arm64 --platform linux/arm64" in arm
    assert "DEBIAN=" not in amd
    assert "--tag sandmesh/base:latest-amd64 --platform linux/amd64" in amd


async def test_the_image_with_node_is_built_on_the_base_that_is_built_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, docker = tmp_path / "log", tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    builder = ImageBuilder(DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path), tag="1.2"))
    assert [step async for step in builder.build("base-node", "linux/arm64")]
    base, node = [line for line in log.read_text().splitlines() if line.startswith("build ")]
    assert "--tag sandmesh/base:1.2-arm64 " in base
    assert "--build-arg BASE=sandmesh/base:1.2-arm64 " in node
    assert "--tag sandmesh/base-node:1.2-arm64 " in node


async def test_nothing_is_made_for_an_engine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, made = tmp_path / "docker", tmp_path / "made"
    docker.write_text('#!/bin/sh\ncase "$1" in version) echo "cannot connect"; exit 1;; esac\n')
    (tmp_path / "mmdebstrap").write_text(f"#!/bin/sh\ntouch {made}\n")
    for program in ("docker", "mmdebstrap"):
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    builder = ImageBuilder(DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path)))
    for steps in (builder.bootstrap(), builder.build("base")):
        with pytest.raises(RuntimeUnavailable, match=r"cannot connect.*so that it listens at "):
            [step async for step in steps]
    assert not made.exists()


async def test_a_build_that_this_processor_cannot_run_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    failing = "echo '#5 exec /bin/sh: exec format error'; exit 1"
    docker.write_text(f'#!/bin/sh\ncase "$1" in build) {failing};; esac\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    builder = ImageBuilder(DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path)))
    with pytest.raises(TemplateBuildFailed, match="qemu-user-static"):
        [step async for step in builder.build("base", "linux/arm64")]


def _failing_client(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> ImageBuilder:
    docker = folder / "docker"
    docker.write_text(f"#!/bin/sh\ncase \"$1\" in build) echo '{output}'; exit 1;; esac\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return ImageBuilder(DockerSettings(paths=MeshPaths("unit", folder, folder)))


async def test_the_hint_to_bootstrap_the_base_names_the_driver_that_has_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = _failing_client(tmp_path, monkeypatch, "#3 ERROR: failed to do request: dial tcp: no route")
    with pytest.raises(TemplateBuildFailed, match="sandmesh build base --driver docker --bootstrap-base"):
        [step async for step in builder.build("base")]


async def test_a_build_on_a_full_disk_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = _failing_client(tmp_path, monkeypatch, "#9 ERROR: write /layer.tar: no space left on device")
    with pytest.raises(TemplateBuildFailed, match="since the disk is full: free space where the engine") as caught:
        [step async for step in builder.build("base")]
    assert "no space left" in caught.value.facts["detail"]


def test_a_folder_names_its_image_where_one_may_have_that_name(tmp_path: Path) -> None:
    for name in ("weather", "Weather", "base"):
        (tmp_path / name).mkdir()
        with pytest.raises(InvalidArgument, match="there is no Dockerfile"):
            own_name(tmp_path / name)
        (tmp_path / name / "Dockerfile").touch()
    assert own_name(tmp_path / "weather") == "weather"
    for name in ("Weather", "base"):
        with pytest.raises(InvalidArgument, match="rename it"):
            own_name(tmp_path / name)


@pytest.mark.parametrize(("name", "packages"), [("browser", 1), ("desktop", 1), ("data", 2)])
def test_an_image_with_a_font_of_the_system_has_no_package_for_the_same_scripts(name: str, packages: int) -> None:
    described = json.loads(UpperLayer(load_templates()[name], "base", with_python=True).environment)
    assert len(described["fonts"]) == packages
    assert any("cjk" in package for package in described["fonts"]) == (packages == 2)
