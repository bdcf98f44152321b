"""images/: what they install is fixed by hashes, what they begin with by a digest, and whom the services run as."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.image_locks import requirement_files

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "images"
DOCKERFILES = sorted(IMAGES.glob("*/Dockerfile"))
USER = "10001"


def _versions(path: Path) -> dict[str, str]:
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def _hashes(lock: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in re.split(r"\n(?=\S)", lock.read_text()):
        if "==" in block:
            found[block.partition("==")[0]] = len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block))
    return found


@pytest.mark.parametrize("path", requirement_files(), ids=lambda path: path.name)
def test_a_lock_has_the_versions_of_its_list_each_with_hashes(path: Path) -> None:
    lock = path.with_suffix(".lock")
    assert _versions(lock) == _versions(path), "run `python -m scripts.image_locks`"
    assert all(_hashes(lock).values())
    assert len(_hashes(lock)) == len(_versions(path)) > 0


def test_the_image_of_the_services_has_the_packages_of_what_the_chart_and_compose_run() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = set(_versions(ROOT / "images" / "mesh" / "mesh.txt"))
    for extra in ("server", "storage", "mcp", "docker", "kubernetes"):
        names = {re.split(r"[\[<>=~!;]", one)[0] for one in extras[extra] if not one.startswith("sandmesh[")}
        assert names - listed == set(), extra


def test_images_install_lists_of_packages_by_their_hashes_alone() -> None:
    for dockerfile in DOCKERFILES:
        steps = dockerfile.read_text().replace("\\\n", " ").splitlines()
        for step in steps:
            for command in re.findall(r"-m pip install[^;]*", step):
                assert "--require-hashes" in command, f"{dockerfile}: {command}"
                assert ".lock" in command


def test_images_of_a_registry_are_named_by_their_digest() -> None:
    digests: set[str] = set()
    for dockerfile in DOCKERFILES:
        values = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile.read_text(), re.MULTILINE))
        stages = set(re.findall(r"^FROM \S+ AS (\w+)$", dockerfile.read_text(), re.MULTILINE))
        for image in re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE):
            begun = values[image[2:-1]] if image.startswith("${") else image
            if begun in stages or begun.startswith("sandmesh/"):
                continue
            assert re.fullmatch(r"debian:bookworm-slim@sha256:[0-9a-f]{64}", begun), dockerfile
            digests.add(begun)
    assert len(digests) == 1, "both begin with the same"


def test_the_services_run_as_one_user_in_the_image_the_compose_file_and_the_chart() -> None:
    assert f"\nUSER {USER}:{USER}\n" in (IMAGES / "mesh" / "Dockerfile").read_text()
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    users = {name: service["user"] for name, service in services.items()}
    assert users.pop("prepare") == "0:0"
    assert set(users.values()) == {f"{USER}:{USER}"}
    assert [name for name, service in services.items() if service.get("cap_add")] == ["prepare"]
    chart = (ROOT / "deploy" / "helm" / "sandmesh" / "templates" / "_helpers.tpl").read_text()
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        assert f"{field}: {USER}\n" in chart
