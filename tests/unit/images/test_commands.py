"""`sandmesh image`, on a layout that the test makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sandmeshd.cli.images.commands import image_commands
from tests.image_layouts import file_entry, make_image, make_tar

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDMESH_IMAGES", str(folder / "images"))


@pytest.mark.usefixtures("environment")
def test_images_are_pulled_listed_inspected_imported_and_removed(folder: Path) -> None:
    made = make_image([make_tar(file_entry("file", b"content"))], {"WorkingDir": "/app", "Cmd": ["run"]})
    layout = made.write_layout(folder / "layout")
    name, run = f"oci:{layout}", CliRunner()
    assert run.invoke(image_commands, ["pull", name]).stdout == f"{made.manifest['digest']}\n"
    assert run.invoke(image_commands, ["ls", "-o", "id"]).stdout == f"{name}\n"
    inspected = json.loads(run.invoke(image_commands, ["inspect", name]).stdout)
    assert (inspected["config"]["working_dir"], inspected["config"]["cmd"]) == ("/app", ["run"])
    assert Path(inspected["layers"][0], "file").read_bytes() == b"content"
    imported = run.invoke(image_commands, ["import", str(layout), "mine:1", "-o", "json"])
    assert json.loads(imported.stdout)["reference"] == "docker.io/library/mine:1"
    assert run.invoke(image_commands, ["ls"]).stdout.count(made.manifest["digest"][7:19]) == 2
    assert run.invoke(image_commands, ["rm", name]).stdout == f"{name}\n"
    assert run.invoke(image_commands, ["prune", "--unused", "1h"]).stdout == ""
    pruned = json.loads(run.invoke(image_commands, ["prune", "-o", "json"]).stdout)
    assert pruned["images"] == ["docker.io/library/mine:1"]
    assert pruned["bytes"] > 0
    missing = run.invoke(image_commands, ["inspect", "mine:1"])
    assert "sandmesh image pull mine:1" in str(missing.exception)
