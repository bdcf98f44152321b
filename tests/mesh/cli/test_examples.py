"""The README's programs do what it says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh.mesh import MeshAsync
from tests.mesh.conftest import MeshMaker

ROOT = Path(__file__).resolve().parents[3]


SOURCES = ("host", "archive") if os.environ.get("SANDMESH_TEST_DEMO") else ("host",)
"""Whence the demo's Chromium is: downloading it takes a minute."""


async def run_example(name: str, *arguments: str, seconds: float = 90, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / name),
        *arguments,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("quickstart.py", ["2432902008176640000", "HELLO", "3 True"]),
        ("quickstart_async.py", ["['0', '1', '4', '9', '16']"]),
        ("live_output.py", ["step 1\nstep 2\nstep 3\n", "+for i in 1 2; do"]),
        ("sessions.py", ["2"]),
        ("environment.py", ["3 3 1.0\n7 7 1.0\n"]),
        ("mesh_client.py", [" base READY {'team': 'red'}", "'created'", "troubles: []"]),
    ],
)
async def test_an_example_prints_what_it_promises(name: str, expected: list[str]) -> None:
    printed = await run_example(name)
    for text in expected:
        assert text in printed


async def test_a_tree_search_finds_the_same_by_forks_and_by_replays() -> None:
    printed = await run_example("tree_search.py", "20")
    assert "by_forks: 20 nodes" in printed
    assert "by_replays: 20 nodes" in printed
    assert "the same result: True" in printed


async def test_who_comes_back_tomorrow_finds_the_sandbox_or_its_files(make_mesh: MeshMaker, tmp_path: Path) -> None:
    async with make_mesh(storage_folder=tmp_path / "workspaces") as mesh, MeshAsync(mesh.addresses[0]) as client:
        printed: list[str] = []
        for ends in (False, True, False):
            printed.append(await run_example("come_back.py", SANDMESH_ADDRESS=mesh.addresses[0]))
            if ends:
                await client.sessions.release("notebook", "ada")
    assert printed == ["new sandbox, visit 1\n", "same sandbox, visit 2\n", "new sandbox, visit 3\n"]


@pytest.fixture
def systems() -> Generator[Path]:
    """Yield a directory that sandboxes' own uid can pass."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.needs("chromium")
@pytest.mark.timeout(660)
@pytest.mark.parametrize("source", SOURCES)
async def test_the_demo_of_a_browser_fills_a_form_and_saves_a_screenshot(
    tmp_path: Path, systems: Path, source: str
) -> None:
    variables = {"SANDMESH_SYSTEM_SOURCE": source, "SANDMESH_SYSTEMS": str(systems)}
    printed = await run_example("demo.py", "--browser", str(tmp_path), seconds=600, **variables)
    assert ("sandmesh build browser" in printed) == (source == "archive")
    assert "http://127.0.0.1:" in printed
    assert "Ordered: ?name=Ada&leaves=black" in printed
    assert (tmp_path / "browser.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.needs("desktop")
async def test_the_example_of_a_desktop_types_into_a_program() -> None:
    printed = await run_example("desktop.py")
    assert "PNG" in printed
    assert "Grüße, 你好" in printed
