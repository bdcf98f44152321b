"""The demo does its whole job; that it leaves nothing is seen at the end of the run."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.mesh.commands import running_mesh

DEMO = Path(__file__).resolve().parents[3] / "examples" / "demo.py"
REACHED = ("only the host knows", "DEMO_VARIABLE=")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run the demo once: what it printed, and the folder with what it saved."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, str(DEMO), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


def test_the_demo_speaks_of_the_mesh_that_an_address_names_and_of_a_private_one_without(
    shown: tuple[str, Path],
) -> None:
    assert "The private mesh ends with this program" in shown[0]
    with running_mesh() as commands, tempfile.TemporaryDirectory() as folder:
        address = f"unix://{commands.settings.paths.gateway}"
        environment = {**os.environ, "SANDMESH_ADDRESS": address}
        command = [sys.executable, str(DEMO), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The mesh at {address} keeps running" in done.stdout
    assert "private mesh" not in done.stdout


def test_the_figures_are_computed_from_the_csv(shown: tuple[str, Path]) -> None:
    assert "2010    400.41" in shown[0]


def test_the_plot_is_saved_beside_the_user(shown: tuple[str, Path]) -> None:
    image = (shown[1] / "co2.png").read_bytes()
    assert image.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", image[16:24])
    assert width > 800
    assert height > 400


def test_the_pipeline_and_the_edit_are_shown(shown: tuple[str, Path]) -> None:
    assert "2020s  419.0 ppm" in shown[0]
    assert "-first, last = 1959" in shown[0]
    assert "2014-2024: 2.58 ppm a year" in shown[0]


def test_nothing_of_the_host_is_reached(shown: tuple[str, Path]) -> None:
    assert not any(text in shown[0] for text in REACHED)
    assert "Read-only file system" in shown[0]
    assert "0000000000000000" in shown[0]
    assert "unreachable" in shown[0]
