"""docs/operate.md: a backup that is restored where nothing of the mesh was left."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from sandmeshd.mesh.sweep import remove
from tests.mesh.commands import Commands, own_mesh_id

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operate.md"
SESSION = ("run", "--session", "work", "--user", "ada", "--", "sh", "-c")


@pytest.fixture
def sandmesh(tmp_path: Path) -> Generator[Commands]:
    """Return the commands of a mesh that saves workspaces."""
    with own_mesh_id() as commands:
        yield replace(commands, environment={"SANDMESH_STORAGE_FOLDER": str(tmp_path / "storage")})


def steps(title: str) -> str:
    """Return the commands below a heading of the page."""
    [found] = re.findall(rf"^## {title}\n.*?```bash\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def follow(commands: Commands, title: str, folder: Path) -> None:
    """Run the commands of the page as they stand there."""
    paths, bin_folder = commands.settings.paths, Path(sys.executable).parent
    variables = {
        **commands.variables,
        "STATE": str(paths.state_root),
        "MESH": paths.mesh_id,
        "STORAGE": str(folder / "storage"),
        "BACKUP": str(folder),
        "PATH": f"{bin_folder}:{commands.variables['PATH']}",
    }
    script = [shutil.which("bash") or "bash", "-euo", "pipefail", "-c", steps(title)]
    done = subprocess.run(script, env=variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_a_backup_that_is_unpacked_over_a_mesh_that_runs_is_refused_before_anything_is_changed(
    sandmesh: Commands, tmp_path: Path
) -> None:
    sandmesh.run("up", "-d")
    follow(sandmesh, "Back up", tmp_path)
    started = sandmesh.run("up", "-d", "-o", "json").json
    sandmesh.run("token", "create", "since", "--user", "ada")
    with pytest.raises(AssertionError, match="runs: sandmesh down first"):
        follow(sandmesh, "Restore", tmp_path)
    # What an operator unpacks by hand: the pid in an old lock is no longer the mesh's.
    sandmesh.settings.paths.lock.write_text("1")
    assert sandmesh.run("down", "-o", "json").json["pid"] == started["pid"]
    sandmesh.run("up", "-d")
    assert "since" in [one["name"] for one in sandmesh.run("token", "ls", "-o", "json").json]


@pytest.mark.timeout(240)
def test_an_upgrade_leaves_sandboxes_running_with_what_their_kernels_know(sandmesh: Commands, tmp_path: Path) -> None:
    sandmesh.run("up", "-d")
    session = ("run", "--no-rm", "--session", "work", "--user", "ada", "--", "true")
    sandmesh.run(*session)
    [box] = [one["sandbox_id"] for one in sandmesh.run("ls", "-o", "json").json]
    cell = ("call", box, "run_ipython_cell")
    sandmesh.run(*cell, '{"code": "number = 41"}')
    follow(sandmesh, "Upgrade a mesh", tmp_path)
    assert sandmesh.run(*cell, '{"code": "print(number + 1)"}').out.strip() == "42"


def lose(commands: Commands, folder: Path) -> None:
    """Lose the machine: nothing of the mesh is left on it."""
    remove(commands.settings.paths)
    shutil.rmtree(folder / "storage")


@pytest.mark.timeout(300)
def test_a_mesh_is_restored_from_its_backup_with_tokens_quotas_secrets_and_workspaces(
    sandmesh: Commands, tmp_path: Path
) -> None:
    sandmesh.run("up", "-d")
    sandmesh.run("token", "create", "ci", "--user", "ada")
    sandmesh.run("quota", "set", "--user", "ada", "sandboxes=3")
    sandmesh.run("secret", "set", "KEY", "--host", "example.org", stdin="value")
    assert sandmesh.run(*SESSION, "echo precious > kept; echo done").out == "done\n"
    follow(sandmesh, "Back up", tmp_path)
    lose(sandmesh, tmp_path)
    follow(sandmesh, "Restore", tmp_path)
    assert [one["name"] for one in sandmesh.run("token", "ls", "-o", "json").json] == ["ci"]
    assert [one["name"] for one in sandmesh.run("secret", "ls", "-o", "json").json] == ["KEY"]
    quotas = sandmesh.run("quota", "show", "--user", "ada", "-o", "json").json
    assert [quota["limits"] for quota in quotas] == [{"sandboxes": 3}]
    assert sandmesh.run(*SESSION, "cat kept").out == "precious\n"


@pytest.mark.timeout(300)
def test_a_backup_that_is_taken_while_the_mesh_writes_has_what_was_there_before(
    sandmesh: Commands, tmp_path: Path
) -> None:
    paths = sandmesh.settings.paths
    sandmesh.run("up", "-d")
    sandmesh.run("token", "create", "before", "--user", "ada")
    writer = sandmesh.start("token", "create", "meanwhile", "--user", "bob")
    archive = tmp_path / "hot.tar"
    tar = shutil.which("tar") or "tar"
    command = [tar, "-C", str(paths.state.parent), "-cf", str(archive), "--exclude=sandboxes", paths.mesh_id]
    assert subprocess.run(command, check=False, timeout=60).returncode in (0, 1)
    writer.communicate(timeout=60)
    sandmesh.run("down")
    lose(sandmesh, tmp_path)
    (tmp_path / "storage").mkdir()
    subprocess.run([tar, "-C", str(paths.state.parent), "-xpf", str(archive)], check=True, timeout=60)
    # As after a tear in the middle of a write: the last record is not whole.
    last = max((paths.store / "appendonlydir").glob("*.incr.aof"))
    with last.open("rb+") as file:
        file.truncate(last.stat().st_size - 3)
    sandmesh.run("up", "-d")
    assert "before" in [one["name"] for one in sandmesh.run("token", "ls", "-o", "json").json]
