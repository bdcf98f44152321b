"""The sample door of `examples/door`, installed as a package of its own: it is opened by a setting and answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from sandmesh.mesh import MeshAsync
from tests.mesh.conftest import run_mesh

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "door"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the sample door for one test."""
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(tmp_path / "packages"), str(source)], check=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])


@pytest.mark.usefixtures("installed")
async def test_the_sample_door_answers_for_a_token_and_refuses_what_is_wrong() -> None:
    async with run_mesh(code=True, code_largest_code=50) as mesh, aiohttp.ClientSession() as http:
        async with MeshAsync(mesh.addresses[0]) as client:
            headers = {"Authorization": f"Bearer {(await client.tokens.create('ada')).secret}"}
        url = f"{mesh.doors['code']}/code/run"
        async with http.post(url, data="print(6 * 7)", headers=headers) as response:
            assert (response.status, await response.json()) == (200, {"output": "42\n", "failed": False})
        async with http.post(url, data="1") as response:
            assert response.status == 401
        async with http.post(url, data="#" * 51, headers=headers) as response:
            assert response.status == 413
